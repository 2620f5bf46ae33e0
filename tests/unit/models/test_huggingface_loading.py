"""Folders of transformers: what is loaded, what is told of it, and what is refused in one line."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm
from hebblm.errors import UserError
from hebblm.models.huggingface.load import load_causal

from .architectures import CONTEXT, STRIDE, TEXT, changed, opened, random_model
from .architectures import saved as saved_model

transformers = pytest.importorskip("transformers")


def saved(folder: Path) -> Path:
    return saved_model(random_model("Llama"), folder)


def test_what_is_set_where_a_model_is_loaded_is_refused_later(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    lm = opened("Llama")
    for option, value in (("key", "ffn-input"), ("dtype", "float16"), ("context", 8)):
        with pytest.raises(
            UserError,
            match=rf"{option} is set where a model is loaded: hebblm.load\(..., {option}=",
        ):
            hebblm.evaluate(lm, tmp_path / "a.txt", ["knn"], **{option: value})


def test_where_a_model_lies_its_tokenizer_lies_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "inner")
    options, load = {}, transformers.AutoTokenizer.from_pretrained

    def noted(*args: Any, **given: Any) -> Any:
        options.update(given)
        return load(*args, **given)

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", noted)
    where = {
        "subfolder": "inner",
        "revision": "main",
        "token": False,
        "cache_dir": str(tmp_path / "cache"),
    }
    load_causal(tmp_path, device=torch.device("cpu"), attn_implementation="eager", **where)
    assert options == {**where, "trust_remote_code": False}


def test_weights_without_a_place_are_told_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = changed(saved(tmp_path / "model"), "config.json", num_hidden_layers=1)
    capfd.readouterr()
    hebblm.load(folder, device="cpu")
    (line,) = capfd.readouterr().err.splitlines()
    assert "holds 9 weights (model.layers.1." in line


@pytest.mark.parametrize(("kind", "answer"), [("llama", "y"), ("of-its-own", "y")])
def test_code_beside_a_model_is_never_run(
    kind: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = (
        changed(saved(tmp_path / "model"), "config.json", model_type=kind),
        tmp_path / "ran",
    )
    (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\n")
    auto = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "theirs.Theirs")
    changed(folder, "config.json", auto_map=auto)
    changed(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "theirs.Theirs"]})
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    monkeypatch.setattr("sys.path", [*sys.path])  # transformers adds that folder
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n" * 9))
    with nullcontext() if kind == "llama" else pytest.raises(UserError, match="model"):
        hebblm.load(folder, device="cpu")
    with pytest.raises(UserError, match="trust_remote_code = True"):
        hebblm.load(folder, device="cpu", trust_remote_code=True)
    assert not ran.exists()


def test_a_folder_is_loaded_and_bad_ones_get_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model")
    lm = hebblm.load(folder, device="cpu", dtype="float32", context=CONTEXT, stride=STRIDE)
    found, expected = lm.reader("mixture").read(TEXT), opened("Llama").reader("mixture").read(TEXT)
    torch.testing.assert_close(found.nll, expected.nll)
    assert repr(lm).endswith("70 pieces)")
    pickled = saved(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    empty = saved(tmp_path / "empty")
    (empty / "model.safetensors").unlink()
    cut = saved(tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])
    other = tmp_path / "other"
    transformers.T5Config(d_model=8).save_pretrained(other)
    (other / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    bare = saved(tmp_path / "bare")
    (bare / "config.json").unlink()
    speechless, damaged = saved(tmp_path / "speechless"), saved(tmp_path / "damaged")
    for path in speechless.glob("tokenizer*"):
        path.unlink()
    (damaged / "tokenizer.json").write_text("{}")
    deeper = changed(saved(tmp_path / "deeper"), "config.json", num_hidden_layers=3)
    endless = changed(saved(tmp_path / "endless"), "config.json", num_hidden_layers=10**30)
    inverted = changed(saved(tmp_path / "inverted"), "config.json", num_hidden_layers=-1)
    lengthy = changed(saved(tmp_path / "lengthy"), "tokenizer_config.json", model_max_length="x")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name, told in (
        (pickled, "pickled.*save_pretrained"), (empty, "no weights"), (cut, "truncated or corrupt"),
        (other, "t5 is an encoder-decoder"), (bare, "no config.json"), (speechless,
        "no fast tokenizer"),
        (damaged, "is damaged"),
        (deeper, "lacks 9 weights .*which would be random"), (inverted, "cannot read a text"),
        (endless, "is more than the 21 weights"),
        (lengthy, "cannot load the tokenizer"),
        ("./nowhere", "is not a folder"), ("a/b/c", "a/b/c"),
        ("someone/nothing-there", "someone/nothing-there"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told) as error:
            hebblm.load(name, device="cpu")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="float8"):
        hebblm.load(folder, dtype="float8")
    with pytest.raises(UserError, match=r"use_safetensors = False: .*; leave it out"):
        hebblm.load(folder, use_safetensors=False)
    with pytest.raises(UserError, match="context = 16"):
        hebblm.load("tiny-pydoc-raw", context=16)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"\.\[hf\]"):
        hebblm.load(folder)
