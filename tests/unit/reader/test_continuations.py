"""What is expected after rows of pieces, and what is kept of it."""

from __future__ import annotations

import pytest
import torch

import hebblm
from hebblm.reader import session as module
from hebblm.reader.own_text import TextStart
from hebblm.reader.session import Continuations, ReaderSession

from ...support.pieces import tokenizer_of
from ..models.architectures import random_model

ROWS = [(5,), (5, 6), (7,), (8, 9)]


@pytest.fixture
def session() -> ReaderSession:
    tokenizer = tokenizer_of("byte-level")
    network = random_model("Llama", vocab_size=len(tokenizer))
    reader = hebblm.load((network, tokenizer), context=64, stride=32).reader("best")
    reader.read("the list is the end of the list , the list is the end .\n" * 4)
    reader.begin()
    return reader.session.snapshot()


def test_a_row_that_was_asked_is_not_computed_again(
    session: ReaderSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[tuple[int, ...]] = []
    compute = Continuations._computed

    def counted(
        self: Continuations, rows: list[tuple[int, ...]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        computed.extend(rows)
        return compute(self, rows)

    monkeypatch.setattr(Continuations, "_computed", counted)
    with TextStart(session).text(session.ids("the end of").tolist()) as text:
        with text.expectation() as (_, expect):
            first = expect(ROWS)
            begin = expect([()])
        assert computed == ROWS
        with text.expectation() as (_, expect):
            for again, before in zip(expect(ROWS), first, strict=True):
                assert torch.equal(again, before)
            assert torch.equal(expect([(8, 9), ()])[0], torch.cat([first[0][3:], begin[0]]))
        assert computed == ROWS
        text.read(session.ids("the list").tolist()[1:])  # another place
        with text.expectation() as (_, expect):
            expect(ROWS)
        assert computed == ROWS * 2


def test_only_the_latest_rows_are_kept(
    session: ReaderSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TextStart(session).text(session.ids("the end of").tolist()) as text:
        with text.expectation() as (_, expect):
            expected = expect(ROWS)
        monkeypatch.setattr(module, "KEPT_NUMBERS", 4 * expected[0].shape[1])  # two rows
        text._ahead = None
        with text.expectation() as (_, expect):
            for row in (*ROWS, ROWS[0]):
                expect([row])
                assert len(expect._known) <= 3, "the place itself and two rows"
            assert set(expect._known) == {(), ROWS[3], ROWS[0]}
            for computed, before in zip(expect(ROWS), expected, strict=True):
                torch.testing.assert_close(computed, before, atol=1e-4, rtol=0)
