"""Every command reads every kind of text, and finds the same tokens in each."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hebblm
from hebblm.cli.eval import main as evaluate
from hebblm.cli.memory import main as memory
from hebblm.cli.preprocess import main as preprocess
from hebblm.cli.read import main as read
from hebblm.cli.train import main as train
from hebblm.cli.tune import main as tune
from hebblm.errors import UserError
from hebblm.reader.corpora import SavedMemory

from .conftest import result, run

MODEL = "tiny-pydoc-raw"
DOCUMENTS = [f"The function returns a list .\n\u00e9 call number {n} fails" for n in range(6)]
"""Twelve lines; none of the documents ends its last one."""
LINES = "\n".join(DOCUMENTS).split("\n")
TOKENS = sum(len(line.split()) + 1 for line in LINES)
VALID = sum(len(line.split()) + 1 for line in LINES[9:10])
ROWS = [
    {"number": number, "text": text}
    for number, text in enumerate([*DOCUMENTS[:3], "", *DOCUMENTS[3:]])
]
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
    pq.write_table(
        pa.Table.from_pylist([{**row, "text": row["text"] or None} for row in ROWS]), stream
    )
    return stream.getvalue()


def zstd(data: bytes) -> bytes:
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


def written(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the same text in a kind of file, and return its path."""
    if kind == "-":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
        return "-"
    if kind == "folder":
        (folder / "in" / "deep").mkdir(parents=True)
        (folder / "in" / "a.txt").write_text("\n".join(DOCUMENTS[:2]))
        (folder / "in" / "deep" / "b.JSONL").write_text(
            json.dumps({"text": "\n".join(DOCUMENTS[2:4])})
        )
        last = f'text\n"{chr(10).join(DOCUMENTS[4:])}"'.encode()
        (folder / "in" / "deep" / "c.csv.gz").write_bytes(gzip.compress(last))
        (folder / "in" / "picture.png").write_bytes(b"\xff\xfe")
        return str(folder / "in")
    (folder / kind).write_bytes(FILES[kind]())
    return str(folder / kind)


def counted(out: str) -> int:
    """Return the sum of the numbers of tokens that a command prints."""
    return sum(
        int(count.replace(",", ""))
        for count in re.findall(r"[:,] ([\d,]+) tokens", " ".join(out.split()))
    )


@pytest.mark.parametrize("kind", [*FILES, "folder", "-"])
def test_every_kind_holds_the_same_tokens(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"read {MODEL} {written(kind, tmp_path, monkeypatch)} --method lstm") == 0
    assert counted(capsys.readouterr().out) == TOKENS


@pytest.mark.parametrize("kind", ["t.jsonl.zst", "t.parquet.gz", "folder", "-"])
def test_every_command_reads_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(line: str) -> str:
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        assert (
            run(line.format(text=written(kind, tmp_path, monkeypatch), out=tmp_path / "out")) == 0
        )
        return capsys.readouterr().out

    assert counted(said(f"eval --checkpoint {MODEL} --methods lstm --text {{text}}")) == TOKENS
    assert (
        counted(
            said(f"eval --checkpoint {MODEL} --methods lstm --split valid --target text:{{text}}")
        )
        == VALID
    )
    assert f"{TOKENS} entries" in said(
        f"memory build --model {MODEL} --text {{text}} --output-path {{out}}/m"
    )
    assert counted(said("preprocess --text {text} --output-path {out}/p")) == TOKENS
    said(
        f"tune --checkpoint {MODEL} --methods cache --skip-dynamic --text {{text}} --output-path "
        f"{{out}}/t"
    )
    assert result(tmp_path / "out" / "t", "tuned.json")["scenario"]["tokens"] == VALID


def test_strings_are_read_as_the_file_that_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(JSON_LINES)
    options = {"methods": ["lstm"], "update_every": 7}
    strings = [str(row["text"]) for row in ROWS]
    series = pd.Series([None, "\ufeff" + strings[0], *strings[1:]])
    results = [
        hebblm.evaluate(MODEL, target, **options)
        for target in (strings, series, tuple(strings), path)
    ]
    assert {result.scenario.tokens for result in results} == {TOKENS}
    assert {result.scenario.extra["column"] for result in results} == {"text"}
    assert len({result.methods["lstm"].nll for result in results}) == 1
    frame = pd.DataFrame({"body": strings})
    with pytest.raises(
        UserError, match=r"target is a table; name its column of text, as table\['body'\]"
    ):
        hebblm.evaluate(MODEL, frame, **options)
    assert hebblm.evaluate(MODEL, frame["body"], **options).scenario.tokens == TOKENS
    found = hebblm.tune(MODEL, strings, ["cache"], dynamic=False)
    assert "cache" in str(found.values)


TWO = "".join(json.dumps({"url": "http://a", "content": text}) + "\n" for text in DOCUMENTS)
COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "eval": (evaluate, ["--checkpoint", MODEL, "--methods", "lstm", "--text"]),
    "tune": (tune, ["--checkpoint", MODEL, "--methods", "cache", "--skip-dynamic", "--text"]),
    "read": (read, [MODEL]),
    "memory": (memory, ["build", "--model", MODEL, "--text"]),
    "preprocess": (preprocess, ["--text"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_column_is_asked_for_and_recorded(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, arguments = COMMANDS[name]
    path, out = tmp_path / "t.jsonl", tmp_path / "out"
    path.write_text(TWO)
    save = ["--save" if name == "read" else "--output-path", str(out)]
    assert command([*arguments, str(path), *save]) == 2
    asked = (
        f"{path} has no column text, and url and content all hold text; choose one with --column\n"
    )
    assert capsys.readouterr().err.endswith(f": error: {asked}")
    assert not out.exists()
    assert command([*arguments, str(path), "--column", "content", *save]) == 0
    said = capsys.readouterr().out
    recorded = {
        "eval": lambda: json.loads((out / "result.json").read_text())["scenario"]["column"],
        "tune": lambda: json.loads((out / "tuned.json").read_text())["scenario"]["column"],
        "read": lambda: "content" if counted(said) == TOKENS else None,
        "memory": lambda: SavedMemory.of(out).about["texts"][0]["column"],
        "preprocess": lambda: json.loads((out / "corpus.json").read_text())["provenance"]["column"],
    }
    assert recorded[name]() == "content"


def test_a_memory_of_another_column_is_another_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(TWO)
    build = ["build", "--model", MODEL, "--text", str(path), "--output-path", str(tmp_path / "m")]
    for column, entries in (("content", TOKENS), ("url", 6 * len(DOCUMENTS))):
        assert memory([*build, "--column", column]) == 0
        assert f"{entries} entries" in capsys.readouterr().out


def test_a_data_set_has_its_column_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text(TWO * 5)
    scenario = ["--checkpoint", MODEL, "--target", f"hf:{folder}", "--methods", "lstm"]
    scenario += ["--output-path", str(tmp_path / "o")]
    assert evaluate(scenario) == 2
    assert "url and content all hold text; choose one with --column" in capsys.readouterr().err
    assert evaluate([*scenario, "--column", "content"]) == 0
    assert (
        json.loads((tmp_path / "o" / "result.json").read_text())["scenario"]["column"] == "content"
    )
    capsys.readouterr()
    assert (
        train(
            [
                "--corpus",
                f"hf:{folder}",
                "--preset",
                "tiny",
                "--output-path",
                str(tmp_path / "model"),
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "url and content all hold text; hebblm-preprocess --text" in said
    remedy = said[said.index("hebblm-preprocess ") :].split()[1:5]
    assert remedy == ["--text", f"hf:{folder}", "--column", "NAME"]
    assert preprocess([*remedy[:3], "content", "--output-path", str(tmp_path / "corpus")]) == 0
    assert (
        preprocess(
            [*remedy[:3], "content", "--train", "x", "--output-path", str(tmp_path / "corpus")]
        )
        == 2
    )
    assert "has splits of its own; leave --train out" in capsys.readouterr().err


def test_python_names_arguments_and_leaves_commands_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(TWO * 5)
    with pytest.raises(UserError, match=r"choose one with `column`$"):
        hebblm.evaluate(MODEL, tmp_path / "train.jsonl", ["lstm"])
    assert (
        hebblm.evaluate(MODEL, tmp_path / "train.jsonl", ["lstm"], column="content").scenario.tokens
        == 5 * TOKENS
    )
    with pytest.raises(
        UserError,
        match=r"hebblm-preprocess --text hf:\S+ --column NAME makes a corpus of one of them$",
    ):
        hebblm.evaluate(target=DOCUMENTS, methods=["lstm"], source=f"hf:{tmp_path}")


def test_named_splits_may_be_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for split in ("train", "valid"):
        (folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(JSON_LINES))
    scenario = ["--checkpoint", MODEL, "--text", str(folder), "--methods", "lstm"]
    assert evaluate(scenario) == 2
    assert (
        f"{folder / 'test.jsonl.gz'} does not exist; a folder needs a file for each of"
        in capsys.readouterr().err
    )
    (folder / "test.jsonl.gz").write_bytes(gzip.compress(JSON_LINES))
    assert evaluate(scenario) == 0
    assert counted(capsys.readouterr().out) == TOKENS
    (folder / "test.txt").write_text("a second one")
    assert evaluate(scenario) == 2
    assert "are both the test split; move one of them elsewhere" in capsys.readouterr().err
    (folder / "test.txt").rename(tmp_path / "test.txt")
    assert evaluate([*scenario, "--split", "valid"]) == 0


def test_control_characters_do_not_vanish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.txt"
    path.write_text("The function returns a li\0st, a li\0st\n")
    assert read([MODEL, str(path), "--tokenizer", "moses"]) == 0
    said = capsys.readouterr()
    assert f"{path}: 9 tokens" in said.out
    assert "1 new word" in said.out
    assert "most often 'li\\x00st';" in said.err, "a terminal shows it, too"


def test_a_line_with_many_unknown_words_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.txt"
    path.write_text("the <unk>, " * 1_200)
    options = ["--tokenizer", "moses"]
    assert (
        evaluate(
            [
                "--checkpoint",
                MODEL,
                "--text",
                str(path),
                "--max-tokens",
                "50",
                "--methods",
                "lstm",
                *options,
            ]
        )
        == 0
    )
    assert "first 50 of 3,601 tokens" in " ".join(capsys.readouterr().out.split())
    assert read([MODEL, str(path), "--method", "lstm", *options]) == 0
    assert f"{path}: 3,601 tokens" in capsys.readouterr().out


def test_standard_input_is_for_one_process_and_not_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = ["--checkpoint", MODEL, "--text", "-", "--methods", "lstm"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert evaluate(scenario) == 2
    assert "standard input is empty; put text into it" in capsys.readouterr().err
    monkeypatch.setattr("hebblm.text.formats.size", lambda: 2)
    assert evaluate(scenario) == 2
    assert (
        "several processes cannot share standard input; write it to a file and name that"
        in capsys.readouterr().err
    )
