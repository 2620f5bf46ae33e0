"""Documents that a reader reads side by side have the scores of a plain loop with a base and a
window for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import hebblm
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.memory import build_memory

DOCUMENTS = [
    "The function frobnitz returns a list .\nCall frobnitz with two arguments , or quux .",
    "If quux fails , the method raises an error .",
    "",
    "A list .",
    "The quux method returns None , and blarg calls frobnitz with the list of arguments .\nThen it "
    "stops .",
]
# n-grams know each word of an interval once it is read; what is done here knows them when the
# interval is over.
WITHOUT_NGRAM = {"best.parts": "base,short,medium,long,knn,mbpa"}
METHODS_READ = ["lstm", "cache", "knn", "mixture", "mbpa", "mixture+hebb", "best"]
EVERY = 5
# nats: on some processors a batch of LSTM states is rounded otherwise than a single one
CLOSE = 3e-3


@pytest.fixture(scope="module")
def lm() -> hebblm.LanguageModel:
    return hebblm.load("tiny-pydoc-raw", device="cpu")


def one_by_one(  # noqa: C901 - the plain form of reading, in one place
    lm: hebblm.LanguageModel, method: str, documents: Sequence[str]
) -> list[list[float]]:
    """Predict and score an interval of each document by itself, then learn from all of them in
    their order.
    """
    values = Hyperparameters().changed(WITHOUT_NGRAM)
    predictor, words = METHODS[method].predictor(values.methods), lm.vocabulary.dictionary
    texts = [document.replace("\n", " <eos> ").split() for document in documents]
    memory = build_memory(lm.model.key_width, values.memory, torch.device("cpu"))
    bases = [lm.model.base() for _ in texts]
    contexts = [
        Context(
            base.head, memory, k=200, window=predictor.requirements.window,
            train_counts=torch.tensor(words.counts), new_classes=torch.zeros(len(words),
            dtype=torch.bool),
        )
        for base in bases
    ]  # fmt: skip
    for context in contexts:
        context.learn_mixture_weights([predictor])
    rows: dict[str, int] = {}  # of new words that were learned
    found: list[list[float]] = [[] for _ in texts]

    def index(word: str) -> int:
        return words.index(word) if word in words else rows.get(word, words.unk_index)

    for start in range(0, max(map(len, texts)), EVERY):
        scored = []
        for text, base, context, losses in zip(texts, bases, contexts, found, strict=True):
            part = text[start : start + EVERY]
            if part:
                before = text[start - 1 : start] or ["<eos>"]
                batch = EvalBatch(
                    base.read(torch.tensor([index(word) for word in [*before, *part[:-1]]])),
                    context,
                )
                losses += predictor.score(
                    batch, torch.tensor([index(word) for word in part])
                ).tolist()
                scored.append((context, batch, part))
        for _, _, part in scored:
            for word in part:
                if word not in words and word not in rows:
                    rows[word] = len(words) + len(rows)
                    for base in bases:
                        base.grow(1)
        for base, context in zip(bases, contexts, strict=True):
            context.set_head(base.head)
        for context in contexts[1:]:
            context.observed = contexts[0].observed  # they grew alike
        observations = [
            (context, batch.observation(torch.tensor([index(w) for w in part])))
            for context, batch, part in scored
        ]
        for context, observation in observations:
            context.observe(observation)
            context.count_ngrams(observation)
    return found


@pytest.fixture(scope="module")
def plain(lm: hebblm.LanguageModel) -> Sequence[hebblm.Scores]:
    return lm.reader("lstm", update_every=EVERY).read(DOCUMENTS)


@pytest.mark.parametrize("method", METHODS_READ)
def test_side_by_side_equals_one_by_one(
    lm: hebblm.LanguageModel, plain: Sequence[hebblm.Scores], method: str
) -> None:
    reader = lm.reader(method, update_every=EVERY, settings=WITHOUT_NGRAM)
    scores = reader.read(DOCUMENTS)
    expected = one_by_one(lm, method, DOCUMENTS)
    assert [len(each) for each in scores] == [len(losses) for losses in expected]
    for each, losses in zip(scores, expected, strict=True):
        torch.testing.assert_close(each.nll, torch.tensor(losses), rtol=0, atol=CLOSE)
    assert len(reader) == sum(len(losses) for losses in expected)
    for each, other in zip(scores, plain, strict=True):
        assert each.unadapted is not None
        torch.testing.assert_close(each.unadapted.nll, other.nll, rtol=0, atol=CLOSE)
    # else nothing above would mean much
    if METHODS[method].predictor(Hyperparameters().methods).requirements.retrieval:
        apart = lm.reader(method, update_every=EVERY).read(DOCUMENTS[4])
        assert (scores[4].nll - apart.nll).abs().max() > 1e-2
    else:
        apart = lm.reader(method, update_every=EVERY).read(DOCUMENTS[3])
        assert scores[3].perplexity == pytest.approx(apart.perplexity, rel=1e-4)


@pytest.mark.parametrize("method", ["cache", "mixture+hebb", "best", "dynamic"])
def test_one_document_has_the_numbers_of_a_text(lm: hebblm.LanguageModel, method: str) -> None:
    settings = {"dynamic.lr": 0.1, "dynamic.rule": "sgd"} if method == "dynamic" else {}
    first, second = (lm.reader(method, settings=settings) for _ in range(2))
    for text in DOCUMENTS[:2]:
        (one,) = first.read([text])
        second.begin()
        other = second.read(text)
        assert torch.equal(one.nll, other.nll)
        assert torch.equal(one.new, other.new)
        assert one.tokens == other.tokens
    second.begin()
    assert first.suggest("The function", 4) == second.suggest("The function", 4)


@pytest.mark.parametrize("method", ["cache", "mixture+hebb", "best"])
def test_no_document_sees_what_stands_beside_it_or_what_comes(
    lm: hebblm.LanguageModel, method: str
) -> None:
    """An interval of each is scored before any is learned from, whatever stands in it and behind
    it.
    """
    reader = lm.reader(method, update_every=EVERY)
    scores = reader.read(DOCUMENTS)
    changed = [
        DOCUMENTS[0],
        "Quite other zork words .",
        *DOCUMENTS[2:4],
        "Nothing that it said , zork .",
    ]
    others = lm.reader(method, update_every=EVERY).read(changed)
    for one, other in zip(scores, others, strict=True):
        same = [a == b for a, b in zip(one.tokens[:EVERY], other.tokens, strict=False)]
        count = same.index(False) if False in same else len(same)
        torch.testing.assert_close(one.nll[:count], other.nll[:count], rtol=1e-5, atol=1e-5)
        assert one.new[:count].tolist() == other.new[:count].tolist()


def test_documents_that_are_only_scored_leave_everything_as_it_was(
    lm: hebblm.LanguageModel,
) -> None:
    reader, other = lm.reader(), lm.reader()
    for each in (reader, other):
        each.read(DOCUMENTS[0])
        each.begin()
    words, entries = list(reader.vocabulary.words), len(reader)
    scores = reader.read(DOCUMENTS, learn=False)
    assert (reader.vocabulary.words, len(reader)) == (words, entries)
    for document, each in zip(DOCUMENTS, scores, strict=True):
        other.begin()
        torch.testing.assert_close(
            each.nll, other.read(document, learn=False).nll, rtol=1e-5, atol=1e-5
        )
    other.begin()
    assert reader.suggest("The", 4) == other.suggest("The", 4)


def test_what_several_documents_taught_goes_on_in_the_next_text(lm: hebblm.LanguageModel) -> None:
    reader = lm.reader("mixture+hebb", update_every=EVERY)
    seen = []
    scores = reader.read(DOCUMENTS, progress=lambda done, total: seen.append((done, total)))
    total = sum(len(each) for each in scores)
    assert seen[-1] == (total, total)
    assert reader.vocabulary.words == ["frobnitz", "quux", "blarg"]
    words = {
        token
        for each in scores
        for token, new in zip(each.tokens, each.new.tolist(), strict=True)
        if new
    }
    assert words == {"frobnitz", "quux", "blarg"}
    after = reader.read("Call frobnitz .")
    assert not after.new.any()
    assert after.nll[1] < 5
    ids = [
        [reader.vocabulary.encode(word, include=False).ids[0] for word in text.split()]
        for text in ("a list", "an error")
    ]
    assert [each.tokens for each in reader.read(ids)] == [("a", "list"), ("an", "error")]
    assert [each.tokens for each in reader.read([torch.tensor(own) for own in ids])] == [
        ("a", "list"),
        ("an", "error"),
    ]


def test_dynamic_evaluation_reads_one_text(lm: hebblm.LanguageModel) -> None:
    reader = lm.reader("dynamic", settings={"dynamic.rule": "sgd", "dynamic.lr": 0.1})
    with pytest.raises(
        UserError, match="learns from one text at a time, not from 2 documents side by side"
    ):
        reader.read(["a", "b"])
