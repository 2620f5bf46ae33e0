"""Record of ``recipes/gpu_check.sh`` on a GPU, in one file: tests, and losses on the GPU next to
those on the CPU.

python -m recipes.gpu_check results/gpu
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import torch

from hebblm.io.files import write_json
from hebblm.io.provenance import provenance
from hebblm.report.render.result import Result


def tests(path: Path) -> dict[str, Any]:
    """Return the counts of a junit file, and the names of the tests that failed."""
    suite = ElementTree.parse(path).getroot()[0]
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite
        if case.find("failure") is not None or case.find("error") is not None
    ]
    counts = {
        name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    }
    return {**counts, "seconds": float(suite.get("time", "0")), "failed": failed}


def difference(folder: Path) -> dict[str, dict[str, float]]:
    """Return by method the loss on either device, nats a token, and the seconds of either run."""
    there, here = (Result.load(folder / f"slice-{device}") for device in ("cuda", "cpu"))
    return {
        name: {
            "cuda": method.nll,
            "cpu": here.methods[name].nll,
            "difference": method.nll - here.methods[name].nll,
        }
        for name, method in there.methods.items()
    }


def main() -> None:
    folder = Path(sys.argv[1])
    kind = "cuda" if torch.cuda.is_available() else "cpu"  # the latter at smoke
    document: dict[str, Any] = {
        "schema": "hebblm-gpu/1",
        "device": torch.cuda.get_device_name() if kind == "cuda" else kind,
        "provenance": provenance(f"recipes/gpu_check.sh {folder}", device=kind, seed=1111),
    }
    if (folder / "tests.xml").is_file():
        document["tests"] = tests(folder / "tests.xml")
    if all((folder / f"slice-{device}").is_dir() for device in ("cuda", "cpu")):
        document["losses"] = difference(folder)
    write_json(folder / "gpu.json", document)
    print((folder / "gpu.json").read_text())


if __name__ == "__main__":
    main()
