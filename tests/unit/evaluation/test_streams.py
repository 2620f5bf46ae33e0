"""Where streams are cut, what is scored together, and which documents a text is made of."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hebblm.errors import UserError
from hebblm.evaluation.documents import Document, borders, by_document, documents_of
from hebblm.online import layout as layouts
from hebblm.online.layout import Layout
from hebblm.text.hub import DatasetLines
from hebblm.text.sources import FileLines, TextFile
from hebblm.text.words import words_of

from ...support import toy


def test_streams_are_contiguous_and_cut_at_documents_where_there_are_enough() -> None:
    assert Layout.of(10, 3) == Layout((0, 3, 6), (3, 3, 4))
    assert Layout.of(10, 3, borders=[5]) == Layout.of(10, 3)
    assert Layout.of(100, 3, borders=[0, 10, 40, 95, 100]).begins == (0, 40, 95)
    assert Layout.of(100, 4, borders=[1, 2, 3]).begins == (0, 1, 2, 3)
    assert Layout.of(100, 3, borders=[90, 91]).lengths == (90, 1, 9)
    with pytest.raises(UserError, match="streams = 11"):
        Layout.of(10, 11)


@pytest.mark.parametrize("scope", ["shared", "stream"])
@pytest.mark.parametrize("every", [1, 4, 30])
def test_every_token_is_scored_once_and_in_its_place(  # type: ignore[no-untyped-def]
    scope, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "ROWS", 11)
    layout = Layout((0, 5, 30), (5, 25, 20), scope)
    text = torch.arange(50)
    places = []
    for begin in range(0, layout.longest, 8):
        end = min(begin + 8, layout.longest)
        states = layout.cut(text, begin, end)[:, :, None]
        for group in layout.groups(begin, end, every):
            block = layout.block(group, layout.labels(group, text), every, written=True)
            places += layout.places(group).tolist()
            assert (
                layout.states(group, states, begin).squeeze(1).tolist()
                == layout.places(group).tolist()
            )
            assert block.labels.tolist() == layout.places(group).tolist()
            assert len(group.intervals) > 1 or not block.causal
    assert sorted(places) == text.tolist()


def test_files_records_and_articles_are_documents(tmp_path: Path) -> None:
    eos, sign, word = toy.EOS, 2, 3
    lines = [
        [word],
        [sign, word, sign],
        [word, word],
        [sign, sign, word, sign, sign],
        [sign, word, sign],
        [word],
    ]
    stream = toy.stream_of(np.array([token for line in lines for token in (*line, eos)]))
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)]).tolist()
    assert documents_of(stream, None) == []
    signed = replace(stream, symbols=("<unk>", "<eos>", "=", "Robert", *stream.symbols[4:]))
    assert documents_of(signed, None) == [Document("Robert", 0), Document("Robert", starts[4])]
    paths = tuple(tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    for path, count in zip(paths, (4, 3, 5), strict=True):
        path.write_text("x\n" * count)
    files = tuple(map(TextFile, paths))
    sized = replace(signed, bytes=100)
    expected = [
        Document("a.txt", 0, 4),
        Document("b.txt", starts[2], 6),
        Document("c.txt", starts[5], 90),
    ]
    assert documents_of(sized, FileLines(files, 2, 8)) == expected
    rows = [{"text": "a\nb\n"}, {"text": "c"}, {"text": "d\ne\nf"}]
    found = documents_of(sized, DatasetLines(rows, "text", 1, 3))
    assert found == [Document("record 2", 0, 2), Document("record 3", starts[1], 98)]
    assert documents_of(replace(signed, ids=signed.ids[:2]), FileLines(files, 2, 8)) == []
    nll = {"lstm": np.arange(len(stream), dtype=np.float32)}
    own = nll["lstm"][starts[1] :]
    spelled = signed.spelled[starts[1] :].sum()
    assert by_document(found, signed, nll)[1] == {
        "name": "record 3",
        "tokens": len(own),
        "nll": {"lstm": pytest.approx(own.mean())},
        "bytes": 98,
        "bits_per_byte": {"lstm": pytest.approx((own.sum() / math.log(2) + 8 * spelled) / 98)},
    }
    pieces = SimpleNamespace(
        pieces=words_of("ab c d", [(0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (5, 6)])
    )
    assert borders(pieces, [Document("x", 0), Document("y", 2)]) == [0, 5]  # type: ignore[arg-type]
