"""Checkpoints: what is read is what was written, and anything else is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from awd_lstm import AWDLSTM, AWDLSTMConfig, CheckpointError, checkpoint
from awd_lstm.checkpoint import (
    file_sha256,
    load_checkpoint,
    read_config,
    read_file,
    save_checkpoint,
)
from awd_lstm.checkpoint import save_file as sealed_file

HASH = "ab" * 32


def build(seed: int = 0) -> AWDLSTM:
    torch.manual_seed(seed)
    return AWDLSTM(AWDLSTMConfig(11, embedding_dim=4, hidden_dim=6, layers=2, wdrop=0.3))


def saved(folder: Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> AWDLSTM:
    model = build(seed)
    save_checkpoint(folder, model, dictionary_sha256=HASH, training={"seed": seed}, dtype=dtype)
    return model


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_single_precision_comes_back_exactly(tmp_path: Path) -> None:
    model = saved(tmp_path / "new" / "folder")
    loaded = load_checkpoint(tmp_path / "new" / "folder", dictionary_sha256=HASH)
    assert loaded.config == model.config
    assert not loaded.training
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    assert names(tmp_path / "new" / "folder") == ["config.json", "model.safetensors"]


def test_half_precision_comes_back_rounded_once_as_single(tmp_path: Path) -> None:
    model = saved(tmp_path / "half", dtype=torch.float16)
    saved(tmp_path / "full")
    loaded = load_checkpoint(tmp_path / "half")
    for name, value in model.state_dict().items():
        assert loaded.state_dict()[name].dtype == torch.float32
        assert torch.equal(loaded.state_dict()[name], value.half().float())
    half, full = ((tmp_path / f / "model.safetensors").stat().st_size for f in ("half", "full"))
    assert half < 0.8 * full
    assert read_config(tmp_path / "half")["dtype"] == "float16"


def test_the_json_tells_how_the_model_came_about(tmp_path: Path) -> None:
    model = saved(tmp_path, seed=5)
    document = read_config(tmp_path)
    assert document["format"] == "awd-lstm/1"
    assert document["config"] == model.config.to_dict()
    assert document["dictionary_sha256"] == HASH
    assert document["training"] == {"seed": 5}


def test_another_dictionary_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(
        CheckpointError, match=f"dictionary {HASH[:12]}, not cdcdcdcdcdcd; use the corpus"
    ):
        load_checkpoint(tmp_path, dictionary_sha256="cd" * 32)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match="truncated or"):
        load_checkpoint(tmp_path)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(
        b"PK\x03\x04 a zip archive, say from torch.save" * 9
    )
    with pytest.raises(CheckpointError, match="truncated or"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("header", [None, {"format": "awd-lstm/0"}])
def test_another_format_is_refused(tmp_path: Path, header: dict[str, str] | None) -> None:
    save_file({"bias": torch.zeros(3)}, tmp_path / "model.safetensors", header)
    with pytest.raises(CheckpointError, match=r"has format .*, not 'awd-lstm/1'; retrain it"):
        load_checkpoint(tmp_path)


def test_a_missing_checkpoint_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*nowhere/model\.safetensors"):
        load_checkpoint(tmp_path / "nowhere")


def of_an_earlier_version(folder: Path) -> Path:
    """Write the weights again as the library does, without a hash in their header."""
    path = folder / "model.safetensors"
    header, tensors = read_file(path, "")
    document = read_config(folder)
    save_file(tensors, path, {name: text for name, text in header.items() if name != "sha256"})
    document["weights_sha256"] = file_sha256(path)
    (folder / "config.json").write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("json_there", [False, True])
def test_weights_that_were_changed_are_refused(
    tmp_path: Path, earlier: bool, json_there: bool
) -> None:
    saved(tmp_path)
    path = of_an_earlier_version(tmp_path) if earlier else tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    if not json_there:
        (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"changed since|sha256 in config\.json|has no hash of"
    ):
        load_checkpoint(tmp_path)


def test_weights_without_their_json_load(tmp_path: Path) -> None:
    model = saved(tmp_path)
    (tmp_path / "config.json").unlink()
    assert torch.equal(load_checkpoint(tmp_path).embedding, model.embedding)
    assert read_config(tmp_path) == {}


def test_weights_of_an_earlier_version_load(tmp_path: Path) -> None:
    model = saved(tmp_path)
    of_an_earlier_version(tmp_path)
    assert torch.equal(load_checkpoint(tmp_path).embedding, model.embedding)


def test_the_same_model_is_the_same_bytes_of_the_usual_mode(tmp_path: Path) -> None:
    for name in "ab":
        saved(tmp_path / name)
    one, other = (tmp_path / name / "model.safetensors" for name in "ab")
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_mode == (tmp_path / "a" / "config.json").stat().st_mode


def change(tensors: dict[str, torch.Tensor], header: dict[str, str], kind: str) -> None:
    """Make a file that does not fit."""
    config = json.loads(header["config"])
    match kind:
        case "missing":
            del tensors["bias"]
        case "misshapen":
            tensors["bias"] = torch.ones(3)
        case "wide":
            header["config"] = json.dumps({**config, "embedding_dim": 10**8})
        case "deep":
            header["config"] = json.dumps({**config, "layers": 10**9})
        case "text":
            header["config"] = json.dumps({**config, "layers": "two"})
        case "rate":
            header["config"] = json.dumps({**config, "dropout": 7})
        case _:
            del header[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "misshapen",
        "wide",
        "deep",
        "text",
        "rate",
        "config",
        "format",
        "dictionary_sha256",
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, kind: str) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    header, tensors = read_file(path, "")
    change(tensors, header, kind)
    sealed_file(tensors, path, {name: text for name, text in header.items() if name != "sha256"})
    (tmp_path / "config.json").unlink()
    told = "has other tensors|says no shape|has format None|was trained with dictionary"
    with pytest.raises(CheckpointError, match=told):
        load_checkpoint(tmp_path, dictionary_sha256=HASH)


@pytest.mark.parametrize(
    "training", [[], {"corpus": 3}, {"corpus": {"normalization": "upper"}}, {"epoch": "9"}]
)
def test_a_json_with_other_types_is_refused(tmp_path: Path, training: object) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps({"format": "awd-lstm/1", "training": training})
    )
    with pytest.raises(CheckpointError, match="does not fit"):
        read_config(tmp_path)


def test_a_json_that_was_edited_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, seed=1)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(CheckpointError, match="changed since it was written"):
        read_config(tmp_path)


def test_a_folder_in_place_of_the_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match="is not a file"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"), [("{", "not valid JSON"), ("[1]", "not a JSON object")]
)
def test_a_broken_json_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(tmp_path)


def test_a_failed_save_leaves_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path)

    def no_space(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", no_space)
    with pytest.raises(OSError, match="No space left"):
        saved(tmp_path, seed=1)
    assert names(tmp_path) == ["config.json", "model.safetensors"]
    assert torch.equal(load_checkpoint(tmp_path).embedding, model.embedding)
    assert read_config(tmp_path)["training"] == {"seed": 0}


def test_a_json_that_cannot_be_written_leaves_the_older_checkpoint(tmp_path: Path) -> None:
    model = saved(tmp_path)
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_checkpoint(tmp_path, build(1), dictionary_sha256=HASH, training={"seed": object()})
    assert names(tmp_path) == ["config.json", "model.safetensors"]
    assert torch.equal(load_checkpoint(tmp_path).embedding, model.embedding)


@pytest.mark.parametrize("reached", [0, 1, 2])
def test_wherever_a_save_stops_one_whole_checkpoint_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    old = saved(tmp_path)
    replace, left = os.replace, iter(range(reached, -1, -1))

    def stop(source: Path, target: Path) -> None:
        if next(left) == 0:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stop)
    if reached < 2:
        with pytest.raises(KeyboardInterrupt):
            saved(tmp_path, seed=1)
    else:
        saved(tmp_path, seed=1)
    expected = old if reached == 0 else build(1)
    assert torch.equal(
        load_checkpoint(tmp_path, dictionary_sha256=HASH).embedding, expected.embedding
    )
