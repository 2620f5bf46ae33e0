"""Every command reads every kind of text, and finds the same tokens in each."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hebblm.cli.eval import main as evaluate
from hebblm.cli.memory import main as memory
from hebblm.cli.preprocess import main as preprocess
from hebblm.cli.read import main as read
from hebblm.cli.tune import main as tune

MODEL = "tiny-pydoc-raw"
DOCUMENTS = [f"The function returns a list .\n\u00e9 call number {n} fails" for n in range(6)]
"""Twelve lines; none of the documents ends its last one."""
LINES = "\n".join(DOCUMENTS).split("\n")
TOKENS = sum(len(line.split()) + 1 for line in LINES)
VALID = sum(len(line.split()) + 1 for line in LINES[9:10])
ROWS = [{"number": number, "text": text} for number, text in enumerate([*DOCUMENTS[:3], "", *DOCUMENTS[3:]])]
TEXT = "\n".join(DOCUMENTS).encode()


def table(delimiter: str) -> bytes:
    """Return the records as a table of text, with Windows line ends between rows."""
    stream = io.StringIO(newline="")
    rows = csv.DictWriter(stream, ["number", "text"], delimiter=delimiter)
    rows.writeheader()
    rows.writerows(ROWS)
    return stream.getvalue().encode()


def parquet() -> bytes:
    """Return the records as a Parquet file, the empty text as a missing one."""
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{**row, "text": row["text"] or None} for row in ROWS]), stream)
    return stream.getvalue()


def zstd(data: bytes) -> bytes:
    """Return compressed data."""
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
FILES: dict[str, Callable[[], bytes]] = {
    "t.txt": lambda: TEXT,
    "t.md": lambda: b"\xef\xbb\xbf" + TEXT,
    "t.TXT.gz": lambda: gzip.compress(TEXT),
    "t.txt.zst": lambda: zstd(TEXT),
    "t.txt.xz": lambda: lzma.compress(TEXT),
    "t.jsonl": lambda: JSON_LINES,
    "t.jsonl.zst": lambda: zstd(JSON_LINES),
    "t.json": lambda: json.dumps(ROWS).encode(),
    "t.csv": lambda: table(","),
    "t.csv.xz": lambda: lzma.compress(table(",")),
    "t.tsv": lambda: table("\t"),
    "t.parquet": parquet,
    "t.parquet.gz": lambda: gzip.compress(parquet()),
}
KINDS = [*FILES, "folder", "-"]


@pytest.fixture(params=KINDS)
def text(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of the same text, in each kind of file."""
    if request.param == "-":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
        return "-"
    if request.param == "folder":
        (tmp_path / "in" / "deep").mkdir(parents=True)
        (tmp_path / "in" / "a.txt").write_text("\n".join(DOCUMENTS[:2]))
        (tmp_path / "in" / "deep" / "b.JSONL").write_text(json.dumps({"text": "\n".join(DOCUMENTS[2:4])}))
        (tmp_path / "in" / "deep" / "c.csv.gz").write_bytes(
            gzip.compress(f'text\n"{chr(10).join(DOCUMENTS[4:])}"'.encode())
        )
        (tmp_path / "in" / "picture.png").write_bytes(b"\xff\xfe")
        return str(tmp_path / "in")
    path = tmp_path / request.param
    path.write_bytes(FILES[request.param]())
    return str(path)


def counted(out: str) -> int:
    """Return the sum of the numbers of tokens that a command prints."""
    return sum(int(count.replace(",", "")) for count in re.findall(r"[:,] ([\d,]+) tokens", " ".join(out.split())))


def test_eval(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(["--checkpoint", MODEL, "--text", text, "--methods", "lstm"]) == 0
    assert counted(capsys.readouterr().out) == TOKENS


def test_eval_target(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = ["--checkpoint", MODEL, "--target", f"text:{text}", "--split", "valid"]
    assert evaluate([*scenario, "--methods", "lstm"]) == 0
    assert counted(capsys.readouterr().out) == VALID


def test_tune(text: str, tmp_path: Path) -> None:
    scenario = ["--checkpoint", MODEL, "--text", text, "--methods", "cache", "--skip-dynamic"]
    assert tune([*scenario, "--output-path", str(tmp_path / "o")]) == 0
    assert json.loads((tmp_path / "o" / "tuned.json").read_text())["scenario"]["tokens"] == VALID


def test_read(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert read([MODEL, text]) == 0
    assert counted(capsys.readouterr().out) == TOKENS


def test_memory(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert memory(["build", "--model", MODEL, "--text", text, "--output-path", str(tmp_path / "m")]) == 0
    assert f"{TOKENS} entries" in capsys.readouterr().out


def test_preprocess(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert preprocess(["--text", text, "--output-path", str(tmp_path / "p")]) == 0
    assert counted(capsys.readouterr().out) == TOKENS
