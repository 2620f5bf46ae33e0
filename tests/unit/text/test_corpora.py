"""Names to corpora, and what is said where there is none."""

from __future__ import annotations

import json
import os
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hebblm.errors import UserError
from hebblm.io.download import _reachable
from hebblm.text import corpora
from hebblm.text.corpora import SCHEMA, load_manifest, resolve, text_corpus
from hebblm.text.records import CHOOSE
from hebblm.text.sources import SPLITS


def test_one_file_is_split_80_10_10_by_lines(tmp_path: Path) -> None:
    path = tmp_path / "novel.txt"
    path.write_text("".join(f"line {number}\n" for number in range(25)))
    corpus = resolve(f"text:{path}")
    lengths = [len(list(corpus.lines(split))) for split in corpus.splits]
    assert (corpus.splits, lengths) == (("train", "valid", "test"), [20, 2, 3])
    joined = [line for split in corpus.splits for line in corpus.lines(split)]
    assert joined == [f"line {number}" for number in range(25)]
    assert list(corpus.provenance["files"]) == ["novel.txt"]


def test_a_folder_with_named_splits(tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text(name)
    corpus = resolve(f"text:{tmp_path}")
    assert [list(corpus.lines(split)) for split in corpus.splits] == [
        ["train"],
        ["valid"],
        ["test"],
    ]
    (tmp_path / "dev.tok").write_text("dev")
    corpus = text_corpus(tmp_path, {"valid": "dev.tok"})
    assert list(corpus.lines("valid")) == ["dev"]


def test_a_folder_of_other_files_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name, first in (("b.txt", 5), ("deep/c.txt", 10), ("a.txt", 0)):
        (tmp_path / name).write_text("".join(f"{first + number}\n" for number in range(5)))
    (tmp_path / "notes.md").write_text("not text of the corpus")
    corpus = resolve(f"text:{tmp_path}")
    joined = [int(line) for split in corpus.splits for line in corpus.lines(split)]
    assert joined == list(range(15))


def test_bad_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("one line only")
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "train.txt").write_text("text\n")
    (tmp_path / "hollow").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    cases = {
        "absent.txt": "does not exist",
        "empty.txt": "is empty",
        "short.txt": "1 line, too few",
        "split": r"valid\.txt.*test\.txt does not exist",
        "hollow": r"no file of text \(\.txt, \.jsonl",
        "pipe.txt": "is not a plain file",
    }
    for name, told in cases.items():
        with pytest.raises(UserError, match=told):
            resolve(f"text:{tmp_path / name}")
    for name in ("valid", "test"):
        (tmp_path / "split" / f"{name}.txt").write_text("")
    with pytest.raises(UserError, match=r"valid\.txt is empty"):
        resolve(f"text:{tmp_path / 'split'}")
    with pytest.raises(UserError, match="is not a folder, so train cannot be named"):
        text_corpus(tmp_path / "short.txt", {"train": "x"})


def test_unknown_names_tell_the_choices(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'wikitext'.*ptb, wt2, pydoc, numpy, text:PATH"):
        resolve("wikitext")
    with pytest.raises(UserError, match=f"say text:{tmp_path}"):
        resolve(str(tmp_path))


def test_a_column_is_for_records(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="numpy has no columns; leave --column text out"):
        resolve("numpy", "text")
    assert resolve("numpy").splits == ("train", "valid", "test")


def test_a_named_corpus_with_the_wrong_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_DATA", str(tmp_path))
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "train.txt").write_text("no treebank\n")
    with pytest.raises(UserError, match=r"ptb/train\.txt has sha256"):
        resolve("ptb")


@pytest.fixture(autouse=True)
def dataset_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep what datasets caches out of the user's home."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))


def write_rows(folder: Path, splits: dict[str, list[str | None]], column: str = "text") -> None:
    folder.mkdir()
    for split, rows in splits.items():
        lines = (json.dumps({"id": number, column: row}) for number, row in enumerate(rows))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


def test_a_dataset_with_three_splits(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "set", {"train": ["a b\n", "", "c\nd"], "validation": ["v"], "test": ["t"]}
    )
    corpus = resolve(f"hf:{tmp_path / 'set'}")
    assert list(corpus.lines("train")) == ["a b", "", "c", "d"]
    assert list(corpus.lines("valid")) == ["v"]
    assert list(corpus.lines("test")) == ["t"]
    assert set(corpus.provenance["sha256"]) == {"train", "valid", "test"}


def test_a_row_without_a_text_has_no_line(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "set", {"train": ["a", None, "b"], "validation": [None, "v"], "test": ["t"]}
    )
    corpus = resolve(f"hf:{tmp_path / 'set'}")
    assert list(corpus.lines("train")) == ["a", "b"]
    assert list(corpus.lines("valid")) == ["v"]
    assert list(corpus.sources["train"].documents()) == [("record 1", 0), ("record 3", 1)]


def test_of_two_names_of_a_split_the_more_usual_one_is_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "set", {"train": ["a"], "dev": ["d"], "validation": ["v"], "test": ["t"]})
    files = "".join(
        f"  - split: {name}\n    path: {name}.jsonl\n"
        for name in ("train", "validation", "dev", "test")
    )
    card = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n"
    (tmp_path / "set" / "README.md").write_text(card)
    assert list(resolve(f"hf:{tmp_path / 'set'}").lines("valid")) == ["v"]


def test_a_dataset_without_valid_and_test_is_cut(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "set", {"train": [f"row {number}" for number in range(20)]}, column="sentence"
    )
    corpus = resolve(f"hf:{tmp_path / 'set'}")
    joined = [line for split in ("train", "valid", "test") for line in corpus.lines(split)]
    assert joined == [f"row {number}" for number in range(20)]
    assert len(list(corpus.lines("test"))) == 2


def test_a_dataset_without_train_has_the_splits_that_it_has(tmp_path: Path) -> None:
    write_rows(tmp_path / "set", {"validation": ["v"], "test": ["t u", "w"]})
    corpus = resolve(f"hf:{tmp_path / 'set'}")
    assert corpus.splits == ("valid", "test")
    assert list(corpus.lines("test")) == ["t u", "w"]


def test_bad_datasets_are_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "short", {"train": ["a", "b"]})
    write_rows(tmp_path / "other", {"extra": ["a", "b"]})
    card = (
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: extra\n    path: "
        "extra.jsonl\n---\n"
    )
    (tmp_path / "other" / "README.md").write_text(card)
    with pytest.raises(UserError, match="too few to split"):
        resolve(f"hf:{tmp_path / 'short'}")
    with pytest.raises(UserError, match="no split to read, only extra"):
        resolve(f"hf:{tmp_path / 'other'}")
    with pytest.raises(UserError, match="needs the name"):
        resolve("hf:")


@pytest.mark.parametrize(
    ("rows", "told", "column"),
    [
        (
            ['{"url": "u", "content": "c"}'],
            "and url and content all hold text; choose one with --column",
            "content",
        ),
        (
            ['{"text": 5, "b": "c"}'],
            r"column text of .* holds numbers, not text; choose --column b",
            "b",
        ),
        (
            ['{"text": ["a"], "b": "c"}'],
            r"column text of .* holds lists, not text; choose --column b",
            "b",
        ),
        (['{"text": 5}'], r"holds numbers, not text; write strings into it", None),
    ],
)
def test_a_column_of_a_dataset_that_is_not_clear_is_asked_for(
    rows: list[str], told: str, column: str | None, tmp_path: Path
) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(rows * 20))
    with pytest.raises(UserError, match=told):
        resolve(f"hf:{tmp_path}", remedy=CHOOSE)
    if column is not None:
        corpus = resolve(f"hf:{tmp_path}", column)
        assert set(corpus.lines("test")) == {"c"}
        assert corpus.provenance["column"] == column


@pytest.mark.parametrize(
    ("files", "told", "mended"),
    [
        (
            {"train.jsonl": '{"text": "a"}\n' * 20 + '{"text": \n'},
            r"train\.jsonl line 21 is not JSON .*; fix it",
            {},
        ),
        (
            {"train.jsonl": '{"text": "a"}\n' * 20 + '{"text": 5}\n'},
            r"train\.jsonl line 21: column text is 5, not",
            {},
        ),
        (
            {"train.csv": "n,text\n" + "1,a\n" * 20 + "2,a,b\n"},
            r"train\.csv line 22 and line 1 differ: 3 and 2 columns",
            {},
        ),
        (
            {"train.jsonl": '{"text": "a"}\n' * 20, "test.csv": "text\na\n"},
            "file format for all splits.*; keep files of one kind and the same columns there",
            {"test.csv": None},
        ),
        (
            {"train.jsonl": '{"text": "a"}\n' * 20, "test.jsonl": '{"text": "a", "n": 1}\n'},
            "; keep files of one kind and the same columns there",
            {"test.jsonl": '{"text": "a"}\n'},
        ),
    ],
)
def test_what_is_broken_in_a_dataset_is_one_line(
    files: dict[str, str],
    told: str,
    mended: dict[str, str | None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=told) as caught:
        resolve(f"hf:{tmp_path}")
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().err == ""
    for name, now in (
        mended.items() or {name: text.rsplit("\n", 2)[0] for name, text in files.items()}.items()
    ):
        (tmp_path / name).write_text(now) if now is not None else (tmp_path / name).unlink()
    assert set(resolve(f"hf:{tmp_path}").lines("test")) == {"a"}


def test_no_network_for_a_dataset_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    before = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    with pytest.raises(
        UserError, match=r"cannot load hf:nobody/nothing:config .*network"
    ) as caught:
        resolve("hf:nobody/nothing:config")
    assert "\n" not in str(caught.value)
    assert "Offline" in str(caught.value), "asked once, not retried"
    assert before == (datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE)


def test_a_hub_that_refuses_the_page_is_still_reachable() -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert _reachable(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_the_named_corpora_and_their_published_counts() -> None:
    listed = load_manifest()
    assert set(listed) == {"ptb", "wt2", "pydoc", "numpy"}
    counts = {
        name: [listed[name].files[split].tokens for split in SPLITS] for name in ("ptb", "wt2")
    }
    assert counts == {"ptb": [929_589, 73_760, 82_430], "wt2": [2_088_628, 217_646, 245_569]}
    assert (listed["ptb"].types, listed["wt2"].types) == (10_000, 33_278)
    for corpus in listed.values():
        assert corpus.licence
        assert corpus.citation
        for file in corpus.files.values():
            assert len(file.sha256) == 64
            assert all(url.startswith("https://") for url in file.urls)
            assert file.urls


@pytest.mark.parametrize(
    "document",
    [[], {"schema": "other"}, {"schema": SCHEMA}, {"schema": SCHEMA, "corpora": {"x": {}}}],
)
def test_a_damaged_list_is_refused(
    tmp_path: Path, document: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpora.json").write_text(json.dumps(document))
    monkeypatch.setattr(corpora, "manifest_path", lambda: tmp_path / "corpora.json")
    with pytest.raises(UserError, match="restore it"):
        load_manifest()
