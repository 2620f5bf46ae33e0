"""Alternatives are ranked by what a reader expects token by token, whatever stands beside them;
nothing is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import hebblm
from hebblm.errors import UserError
from hebblm.reader.reader import Reader
from hebblm.reader.rerank import RankedText

from ...support import toy

TEXT = (
    "The function frobnitz returns a list .\n"
    "Call frobnitz with two arguments , and frobnitz raises an error .\n"
    "If frobnitz fails , the quux method returns None .\n"
) * 4
BEFORE = "Call frobnitz and "
ALTERNATIVES = [
    "frobnitz raises an error .",
    "frobnitz",
    "the quux method returns an error .",
    "raises",
    "raises two",
]
MODELS = {
    "tiny-pydoc-raw": ["lstm", "mixture+mbpa", "ngram", "best", "dynamic"],
    "llama-wt2-small": ["mixture+hebb+ngram", "dynamic+best"],
}


def read(model: str, method: str) -> Reader:
    settings = {"dynamic.rule": "stream"} if "dynamic" in method else {}
    reader = hebblm.load(model, device="cpu").reader(method, update_every=10, settings=settings)
    reader.read(TEXT)
    return reader


def one_by_one(reader: Reader, before: str, text: str) -> tuple[int, float, float]:
    """Number of tokens of a text, and its log-probabilities, adapted and not, each token read and
    asked for alone.
    """
    ids, known = reader.session.ids(before + text), len(reader.session.ids(before.rstrip(" ")))
    adapted = base = 0.0
    for at in range(known, len(ids)):
        with reader.session.base.preserve_state(), torch.no_grad():
            for token in ids[:at]:
                hidden = reader.session.base.read(token[None])
            batch = reader.session.query(hidden, reader.session.past_with(ids[:at]))
            adapted += float(reader.session.predictor.log_probs(batch)[0, ids[at]])
            base += float(reader.session.base.trained_log_probs(batch)[0, ids[at]])
    return len(ids) - known, adapted, base


@pytest.mark.parametrize(
    ("model", "method"), [(model, method) for model, all_ in MODELS.items() for method in all_]
)
def test_scores_are_those_of_tokens_asked_for_one_by_one_and_nothing_is_learned(
    model: str, method: str, tmp_path: Path
) -> None:
    reader = read(model, method)
    reader.save(tmp_path / "before")
    found = reader.rank(ALTERNATIVES, BEFORE)
    reader.save(tmp_path / "after")
    assert toy.files_in(tmp_path / "before") == toy.files_in(tmp_path / "after")
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert {each.text for each in found} == {*ALTERNATIVES}
    for each in found[:: 1 if model.startswith("tiny") else 3]:  # the other takes long
        tokens, adapted, base = one_by_one(reader, BEFORE, each.text)
        assert each.tokens == tokens
        assert each.log_prob == pytest.approx(adapted, abs=2e-3)
        assert each.unadapted == pytest.approx(base, abs=2e-3)
        [alone] = reader.rank([each.text], BEFORE)
        assert alone.log_prob == pytest.approx(each.log_prob, abs=2e-3), (
            "what stands beside it changes nothing"
        )


def test_what_was_read_decides(tmp_path: Path) -> None:
    lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    reader = lm.reader("best", update_every=10)
    alternatives = ["frobnitz returns a list .", "function returns a list ."]
    assert reader.rank(alternatives, "The function ")[0].text == alternatives[1]
    reader.read(TEXT)
    reader.begin()
    best, other = reader.rank(alternatives, "The function ")
    assert best.text == alternatives[0]
    assert best.unadapted < other.unadapted, "the base alone would not have it"


def test_new_words_are_charged_as_reading_charges_them() -> None:
    reader = read("tiny-pydoc-raw", "lstm")
    for text in ("zorgle the blarg", "list zorgle", "frobnitz"):
        [found] = reader.rank([text])
        scores = hebblm_scores(reader, text)
        assert found.log_prob == pytest.approx(-scores.bits * math.log(2), abs=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_unknown_words_that_a_text_spells_out_pay_their_spelling(model: str) -> None:
    """A language model expects ``<unk>`` often; a recogniser that writes it has heard some word."""
    reader = read(model, "lstm")
    if reader.vocabulary.unknown is None:
        pytest.skip("it reads <unk> as other pieces")
    text = "returns a <unk> <unk> ."
    [found] = reader.rank([text], BEFORE)
    _, adapted, base = one_by_one(reader, BEFORE, text)
    spelling = 2 * 8 * math.log(2) * len("<unk>.")
    assert found.log_prob == pytest.approx(adapted - spelling, abs=2e-3)
    assert found.unadapted == pytest.approx(base - spelling, abs=2e-3)
    assert reader.rank(["<unk>", "list"], "returns a ")[0].text == "list"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("before", ["", "Call ", "Call frobnitz with ", "returns a list .\n"])
def test_silence_costs_the_end_of_the_line(model: str, before: str) -> None:
    reader = read(model, "ngram")
    [end] = reader.rank(["\n"], before.rstrip(" "))
    beside = ["frobnitz", "the list"]
    plain = {each.text: each for each in reader.rank(beside, before)}
    found = {
        each.text: each
        for each in reader.rank([*beside, "", "  "], before, prior=[0, 0, -1.0, -2.0])
    }
    for silence, prior in (("", -1.0), ("  ", -2.0)):
        assert found[silence].tokens == end.tokens
        assert found[silence].log_prob == pytest.approx(end.log_prob, abs=2e-3)
        assert found[silence].score == found[silence].log_prob + prior
    for text in beside:
        assert found[text].log_prob == pytest.approx(plain[text].log_prob, abs=2e-3)


def hebblm_scores(reader: Reader, text: str) -> hebblm.Scores:
    place, last = reader.session.base.stream_state(), reader.session.last
    scores = reader.read(text, learn=False)
    reader.session.base.load_stream_state(place)
    reader.session.last = last
    return scores


def test_a_line_break_charges_for_the_end() -> None:
    reader = read("tiny-pydoc-raw", "mixture")
    short, long = "returns a list .", "returns a list . and the"
    plain = {each.text: each for each in reader.rank([short, long], "frobnitz ")}
    ended = {each.text: each for each in reader.rank([short + "\n", long + "\n"], "frobnitz ")}
    assert ended[short + "\n"].tokens == plain[short].tokens + 1
    assert ended[short + "\n"].log_prob < plain[short].log_prob


def test_pieces_may_reach_over_the_border() -> None:
    reader = read("llama-wt2-small", "mixture")
    inside, outside = (
        reader.rank(["list", "error"], "returns a "),
        reader.rank([" list", " error"], "returns a"),
    )
    for one, other in zip(inside, outside, strict=True):
        assert one.text == other.text.strip()
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)


def test_prior_and_its_weight() -> None:
    reader = read("tiny-pydoc-raw", "mixture")
    words = ["list", "error", "method"]

    def texts(found: Sequence[RankedText]) -> list[str]:
        return [each.text for each in found]

    plain = reader.rank(words, "returns a ")
    prior = [1000.0 * texts(plain).index(word) for word in words]  # the worst has the largest
    assert texts(reader.rank(words, "returns a ", prior=prior)) == texts(plain)[::-1]
    assert texts(reader.rank(words, "returns a ", prior=prior, weight=0)) == texts(plain)
    assert texts(reader.rank(words, "returns a ", prior=prior, weight=-1)) == texts(plain)
    [one] = reader.rank(["list"], prior=np.array([-4], dtype=np.float32), weight=0.5)
    assert one.score == one.log_prob - 2
    assert one.prior == -4
    same = reader.rank(["list", "list"], prior=[1, 1])
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"alternatives": []},
            r"\[\] is not a list of alternatives; give a list of strings, at least one",
        ),
        ({"alternatives": "list"}, "'list' is not a list of alternatives"),
        (
            {"alternatives": ["list", 3]},
            "alternative 2 is 3, not a text; write it as a string, or leave it out",
        ),
        ({"alternatives": ["list"], "before": 7}, "before = 7 is not a text; give a string"),
        ({"alternatives": ["\ud800"]}, "half a surrogate pair; decode the text again"),
        (
            {"alternatives": ["list"], "prior": [1, 2]},
            "prior has 2 numbers for 1 alternatives; give one for each",
        ),
        (
            {"alternatives": ["list"], "prior": [math.nan]},
            "prior of alternative 1 = nan must be a finite number",
        ),
        (
            {"alternatives": ["list"], "prior": 3},
            "prior = 3 is not a row of numbers; give one for each alternative",
        ),
        ({"alternatives": ["list"], "weight": "2"}, "weight = '2' must be a finite number"),
    ],
)
def test_what_cannot_be_ranked_is_refused(asked: dict[str, object], message: str) -> None:
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("lstm")
    with pytest.raises(UserError, match=message):
        reader.rank(**asked)  # type: ignore[arg-type]
