"""Provenance of a number: command, commit, versions, device, processes, seed."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hebblm import kernels
from hebblm.runtime.ranks import current

PACKAGES = (
    "hebblm",
    "torch",
    "numpy",
    "faiss-cpu",
    "faiss-gpu",
    "datasets",
    "sacremoses",
    "sentencepiece",
    "safetensors",
    "scikit-learn",
    "transformers",
    "tokenizers",
    "numba",
)


def provenance(command: str, *, device: str, seed: int) -> dict[str, Any]:
    """Return a JSON object that says how a result was made, with the number of processes if there
    are several.
    """
    import torch

    ranks = current()
    record: dict[str, Any] = {
        "command": command,
        "commit": commit(),
        "versions": versions(),
        "device": device,
        "threads": torch.get_num_threads(),
        "kernels": kernels.description(),
    }
    if ranks.size > 1:
        record["processes"] = ranks.size
        record["backend"] = ranks.backend
    record["seed"] = seed
    return record


def versions() -> dict[str, str]:
    """Return the versions of Python, hebblm and the packages that affect numbers."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def commit() -> str | None:
    """Return the commit of the source checkout in use, with ``+`` if files have changed; None
    outside a checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            ["git", "-C", root, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    sign = "+" if changed.stdout.strip() else ""
    return head.stdout.strip() + sign


def command_line(prog: str, argv: list[str] | None) -> str:
    """Return the command as you can type it again."""
    import shlex

    words = sys.argv[1:] if argv is None else argv
    return shlex.join([prog, *words])
