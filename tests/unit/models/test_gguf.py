"""GGUF files: the same model as the folder that they were made of, and what is refused in one
line.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.cli import eval as evaluating
from hebblm.cli import read as reading
from hebblm.errors import UserError
from hebblm.io.files import sha256

from ...support.gguf_file import llama, write_gguf
from .architectures import TEXT, saved, tokenizer

gguf = pytest.importorskip("gguf")
AWKWARD = (
    "  the\n\n  a in",
    "\tthe\r\na",
    "def the(a):\n    in\n",
    "the naïve 猫 🎉",
    " a",
    "\n",
    "a</s>the",
    "the  a   in",
)


def test_a_file_is_the_model_it_was_made_of(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    lm, source = (
        hebblm.load(path, device="cpu"),
        hebblm.load(saved(llama(), tmp_path / "folder"), device="cpu"),
    )
    assert lm.pieces is not None
    for text in (TEXT, *AWKWARD):
        assert lm.pieces.tokenizer(text)["input_ids"] == tokenizer()(text)["input_ids"]
    for method in ("lstm", "mixture+mbpa"):
        found, expected = (each.reader(method, k=5).read(TEXT * 3).nll for each in (lm, source))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    described = lm.model.describe()
    assert (described["origin"], described["file_sha256"]) == ("gguf", sha256(path))
    assert lm.model.sha256 != source.model.sha256


def test_the_hash_of_the_file_is_part_of_the_identity(tmp_path: Path) -> None:
    first, other = (write_gguf(tmp_path / f"{n}.gguf", general__times_written=n) for n in (1, 2))
    reader = hebblm.load(first, device="cpu").reader("knn", k=5)
    reader.read(TEXT)
    reader.save(tmp_path / "memory")
    again = shutil.copy(first, tmp_path / "copy.gguf")
    assert hebblm.load(again, device="cpu").reader(memory=tmp_path / "memory").method == "knn"
    with pytest.raises(UserError, match="another model"):
        hebblm.load(other, device="cpu").reader(memory=tmp_path / "memory")


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("Q8_0", "bfloat16"), ("Q5_1", "bfloat16"), ("BF16", "bfloat16"), ("F16", "float32")],
)
def test_weights_are_of_half_precision_unless_another_is_asked_for(
    kind: str, dtype: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", kind)
    exact = hebblm.load(saved(llama(), tmp_path / "folder"), device="cpu").reader("lstm").read(TEXT)
    for asked, held in (("auto", dtype), ("float32", "float32")):
        lm = hebblm.load(path, device="cpu", dtype=asked)
        assert lm.model.describe()["dtype"] == held
        assert lm.reader("lstm").read(TEXT).bits_per_byte == pytest.approx(
            exact.bits_per_byte, rel=0.03
        )


def test_a_file_is_named_wherever_a_model_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, text = write_gguf(tmp_path / "tiny.gguf"), tmp_path / "a.txt"
    text.write_text(TEXT * 5)
    for option in ("--model", "--checkpoint"):
        arguments = [option, str(path), "--text", str(text), "--methods", "lstm,cache"]
        assert evaluating.main([*arguments, "--output-path", str(tmp_path / "result")]) == 0
    assert sha256(path) in (tmp_path / "result" / "result.json").read_text()
    assert reading.main([str(path), str(text)]) == 0
    by_folder = hebblm.load(tmp_path, gguf_file="tiny.gguf", device="cpu")
    assert by_folder.model.sha256 == hebblm.load(path, device="cpu").model.sha256
    with pytest.raises(
        UserError, match=r"has no config.json; name one of its files, such as .*tiny.gguf"
    ):
        hebblm.load(tmp_path, device="cpu")
    with pytest.raises(UserError, match=r"gguf_file = 'x\.gguf' has no effect"):
        hebblm.load((llama(), tokenizer()), gguf_file="x.gguf")
    capsys.readouterr()
    for wrong in ("other.gguf", "a.gguf"):
        (tmp_path / "a.gguf").write_bytes(b"GGUF")
        assert reading.main([str(tmp_path / wrong), str(text)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert (
            "does not exist; name a GGUF file" in line
            or "is cut short, damaged, or not a GGUF file" in line
        )


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "tiny.gguf", "Q8_0").read_bytes()
    for size in (0, 3, 20, *range(30, len(whole) - 1, len(whole) // 25), len(whole) - 40):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(
            UserError,
            match=r"cut\.gguf is cut short, damaged, or not a GGUF file .*; download it again",
        ) as caught:
            hebblm.load(tmp_path / "cut.gguf", device="cpu")
        assert "\n" not in str(caught.value)


def test_what_transformers_does_not_read_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_gguf(tmp_path / "tiny.gguf", "Q8_0").read_bytes()
    plain = write_gguf(tmp_path / "plain.gguf").read_bytes()
    at = plain.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    types = plain[:at] + int(gguf.GGMLQuantizationType.I32).to_bytes(4, "little") + plain[at + 4 :]
    for content, told in (
        (whole.replace(b"llama", b"rwkv6"), "architecture rwkv6 is not supported"),
        (types, "for I32 is not"),
        (
            write_gguf(tmp_path / "part.gguf", split__count=3).read_bytes(),
            "one of 3 parts; .*gguf-split --merge",
        ),
        (
            write_gguf(tmp_path / "lfm.gguf", "Q5_1", arch="lfm2").read_bytes(),
            "weights of type Q5_1, which",
        ),
    ):
        (tmp_path / "wrong.gguf").write_bytes(content)
        with pytest.raises(UserError, match=told) as caught:
            hebblm.load(tmp_path / "wrong.gguf", device="cpu")
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"quantization_config: .*leave it out"):
        hebblm.load(tmp_path / "tiny.gguf", device="cpu", quantization_config={})
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[gguf\]'"):
        hebblm.load(tmp_path / "tiny.gguf", device="cpu")


def test_a_text_is_cut_as_the_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = {}
    for way in ("gpt-2", "smollm", "of-its-own"):
        capsys.readouterr()
        lm = hebblm.load(write_gguf(tmp_path / f"{way}.gguf", way=way), device="cpu")
        assert ("splits texts in a way (of-its-own)" in capsys.readouterr().err) == (
            way == "of-its-own"
        )
        assert lm.pieces is not None
        backend = lm.pieces.tokenizer.backend_tokenizer
        cut[way] = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str("a\n\n12")]
    assert cut == {
        "gpt-2": ["a", "Ċ", "Ċ", "12"],
        "smollm": ["a", "ĊĊ", "1", "2"],
        "of-its-own": ["a", "Ċ", "Ċ", "12"],
    }
