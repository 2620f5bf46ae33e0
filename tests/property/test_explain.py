"""Why words are suggested, by every method and for both kinds of model, against plain sums over all
that was read.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.components import mixture_weights, owned
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.cache import Cache
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.methods.hebb import Hebb
from hebblm.adapt.methods.knn import KnnLM
from hebblm.adapt.methods.mbpa import Mbpa
from hebblm.adapt.methods.memory_mixture import Mixed, RememberedLabels
from hebblm.adapt.methods.ngram import Ngram
from hebblm.adapt.methods.predictor import Predictor
from hebblm.errors import UserError
from hebblm.memory.ngrams import LONG, LONG_FROM, SHORT
from hebblm.online.effort import SearchEffort
from hebblm.reader.explain import AROUND, MOST, Explanation, MemoryEntry, explanation_tables
from hebblm.reader.history import laid_out
from hebblm.reader.reader import Reader
from hebblm.reader.suggest import expected_words

from ..parity.reference import relative
from ..support import toy
from ..support.adapters import MEMORIES, every_method, filled, queries
from ..unit.models.architectures import opened

TEXTS = {
    "words": (
        "The function frobnitz returns a list .\nCall frobnitz with two arguments , and frobnitz "
        "raises an error .\n"
        "If frobnitz fails , the function quux returns a list .\nCall quux with a list .\n"
    ),
    "pieces": "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\nthe cat in the fog.\nThe "
    "fin in a hat.\n",
}
NEXT = {"words": "Call", "pieces": "the cat"}
SETTINGS = {
    "dynamic.rule": "sgd",
    "dynamic.lr": 1e-3,
    "cache.window": 30,
    "best.short": 9,
    "best.medium": 21,
}
OFFERED = [*METHODS, "mixture+hebb+ngram", "mbpa+ngram", "dynamic+hebb+ngram"]
OFFERED = [name for name in OFFERED if name in METHODS]
both_kinds = pytest.mark.parametrize("kind", TEXTS)


@pytest.fixture(scope="module")
def models() -> dict[str, hebblm.LanguageModel]:
    return {
        "words": hebblm.load("tiny-pydoc-raw", device="cpu"),
        "pieces": opened("Llama", begins=True),
    }


class Plain:
    """What speaks for one word, by name: shares of the probability, and what each entry gives to
    it.
    """

    def __init__(self, reader: Reader, batch: EvalBatch, word: int) -> None:
        self.reader, self.batch, self.word = reader, batch, word
        context, memory = batch.context, batch.context.memory
        [part] = memory.segments()
        self.keys, self.labels = part.keys.double(), part.values.tolist()
        self.query = batch.queries[0].double()
        head = context.head
        bias = None if head.bias is None else head.bias.double()
        exact = replace(head, weight=head.weight.double(), bias=bias)
        self.base = float(exact.logits(batch.hidden[0].double()).softmax(0)[word])
        self.shares: dict[str, float] = defaultdict(float)
        self.entries: dict[int, float] = defaultdict(float)
        self.near: dict[int, float] = {}

    def add(self, rule: Predictor, share: float = 1.0) -> Plain:
        if isinstance(rule, Mixed | Gated):
            for part, own in zip(rule.predictors, self.weights_of(rule), strict=True):
                self.add(part, share * own)
            return self
        if isinstance(rule, Unadapted) or not self.labels:
            self.shares["base"] += share * self.base
        elif isinstance(rule, RememberedLabels):
            given = self.remembered(rule)
            for at, weight in given.items():
                self.entries[at] += share * weight
            self.shares[rule.name] += share * sum(given.values())
        elif isinstance(rule, Ngram):
            rest, given = self.ngram(rule.config.order)
            for at, weight in given.items():
                self.entries[at] += share * weight
            self.shares["ngram"] += share * (rest * self.base + sum(given.values()))
        else:
            self.shares[rule.name] += share * float(rule.log_probs(self.batch)[0, self.word].exp())
            if isinstance(rule, Mbpa | Hebb):
                self.near = self.kernel_weight(rule.config if isinstance(rule, Mbpa) else rule.mbpa)
        return self

    def weights_of(self, rule: Mixed | Gated) -> list[float]:
        learned: Any = None
        if rule in self.batch.context.learners:
            learned = self.batch.learned(rule)[0][0]  # after the question's own context
        if isinstance(rule, Gated):
            found: list[float] = (
                learned.log_mixture_weights(rule.features(self.batch))[0].exp().tolist()
            )
            return found
        return (
            [*learned.value] if learned is not None else [float(rule.share), 1 - float(rule.share)]
        )

    def nearest(self) -> list[tuple[float, int]]:
        distances = (self.keys - self.query).square().sum(1).tolist()
        return sorted((distance, at) for at, distance in enumerate(distances))[
            : self.batch.context.k
        ]

    def remembered(self, rule: RememberedLabels) -> dict[int, float]:
        if isinstance(rule, Cache):
            places = [*range(len(self.labels))][-rule.config.window :]
        else:
            places = [at for _, at in self.nearest()]
        if isinstance(rule, KnnLM):
            scores = -(self.keys[places] - self.query).square().sum(1)
            sharpness = 1 / float(rule.config.temperature)
        else:
            scores, sharpness = self.keys[places] @ self.query, float(rule.config.theta)
        weights = (sharpness * relative(scores)).softmax(0).tolist()
        return {
            at: w for at, w in zip(places, weights, strict=True) if self.labels[at] == self.word
        }

    def ngram(self, order: int) -> tuple[float, dict[int, float]]:
        """What is left to the base, and what each time that the word was read gives to it."""
        read, given, rest = [None] * order + self.labels, defaultdict(float), 1.0
        # the nearest first
        asked = [token if token >= 0 else None for token in self.batch.contexts[0].tolist()]
        levels = []
        for n in range(order + 1):
            behind = [
                at
                for at in range(len(self.labels))
                if all(read[at + order - 1 - i] == asked[i] for i in range(n))
            ]
            if not behind or None in asked[:n]:
                break
            levels.append((n, behind))
        for n, behind in reversed(levels):
            discounts = LONG if n >= LONG_FROM else SHORT
            followers = Counter(self.labels[at] for at in behind)
            taken = {token: discounts[min(count, 3) - 1] for token, count in followers.items()}
            for at in behind:
                if self.labels[at] == self.word:
                    kept = followers[self.word] - taken[self.word]
                    given[at] += rest * kept / len(behind) / followers[self.word]
            rest *= sum(taken.values()) / len(behind)
        return rest, given

    def kernel_weight(self, config: Any) -> dict[int, float]:
        near = self.nearest()
        unit = (
            sum(distance for distance, _ in near) / len(near) if config.scale == "relative" else 1.0
        )
        weights = {at: 1 / (config.eps + distance / unit) for distance, at in near}
        return {
            at: w / sum(weights.values())
            for at, w in weights.items()
            if self.labels[at] == self.word
        }


class Begun:
    """What speaks for a word of several pieces: what speaks for its first ones, times the
    probability of the rest.
    """

    def __init__(self, reader: Reader, batch: EvalBatch, rest: Mapping[int, float]) -> None:
        self.shares: dict[str, float] = defaultdict(float)
        self.entries: dict[int, float] = defaultdict(float)
        self.near: dict[int, float] = defaultdict(float)
        for first, share in rest.items():
            plain = Plain(reader, batch, first).add(reader.session.predictor)
            for own, part in (
                (self.shares, plain.shares),
                (self.entries, plain.entries),
                (self.near, plain.near),
            ):
                for key, value in part.items():
                    own[key] += share * value
        self.labels = plain.labels


@both_kinds
@pytest.mark.parametrize(
    ("method", "reads"),
    [
        *((method, "a text") for method in OFFERED),
        *((method, "nothing") for method in ("lstm", "hebb", "mixture+hebb+ngram", "best")),
    ],
)
def test_shares_and_entries_are_those_of_plain_sums(
    models: dict[str, hebblm.LanguageModel], method: str, kind: str, reads: str
) -> None:
    lm = models[kind]
    reader = lm.reader(method, k=17, update_every=10, settings=SETTINGS)
    if reads == "a text":
        reader.read(TEXTS[kind])
    before = reader.suggest(NEXT[kind], 4, budget=8)
    found = reader.explain(NEXT[kind], 4, budget=8)
    assert [(item.word, item.probability, item.unadapted) for item in found] == before
    assert reader.suggest(NEXT[kind], 4, budget=8) == before, "a question changes nothing"
    batch, expected = expected_words(
        reader.session, NEXT[kind], 4, effort=SearchEffort(8), beginning=reader._beginning
    )
    for item, (_, rest) in zip(found, expected.words, strict=True):
        plain = Begun(reader, batch, rest)
        if reader.uses_dynamic_base and "base" in plain.shares:
            plain.shares["dynamic"] = plain.shares.pop("base")
        assert sum(item.shares.values()) == pytest.approx(item.probability, rel=1e-5)
        assert item.shares == pytest.approx(
            {name: plain.shares.get(name, 0.0) for name in item.shares}, rel=1e-3
        )
        assert set(item.shares) >= set(plain.shares)
        weights = plain.entries or plain.near
        heaviest = sorted(weights.values(), reverse=True)[:MOST]
        assert [entry.weight for entry in item.entries] == pytest.approx(heaviest, rel=1e-3)
        for entry in item.entries:
            assert entry.token is not None
            assert entry.document is None
            assert entry.weight == pytest.approx(weights[entry.token], rel=1e-3)
            around = (
                plain.labels[max(0, entry.token - AROUND) : entry.token],
                plain.labels[entry.token + 1 :],
            )
            space = " " if kind == "words" else ""
            assert entry.before == reader.vocabulary.join(around[0]) + (space if around[0] else "")
            assert entry.after == (space if around[1] else "") + reader.vocabulary.join(
                around[1][:AROUND]
            )
    assert any(item.entries for item in found) == (
        reads == "a text" and method not in ("lstm", "dynamic")
    )


@every_method
def test_the_share_of_a_component_in_a_token_is_that_of_the_word(method: str) -> None:
    context = filled(MEMORIES["flat"], torch.float64)
    rule = METHODS[method].predictor(toy.LEARNED)
    context.learn_mixture_weights([rule])
    toy.observe(context, queries(9, 6, context), torch.arange(6))
    hidden, targets = queries(1, 6, context), torch.tensor([0, 3, 5, 560, 17, 2])
    found = owned(rule, EvalBatch(hidden, context), targets)
    torch.testing.assert_close(
        torch.stack([*found.values()]).sum(0), torch.ones(6, dtype=torch.float64)
    )
    for row, target in enumerate(targets.tolist()):
        given = mixture_weights(rule, EvalBatch(hidden[row : row + 1], context))
        whole = sum(float(part[target]) for part in given.values())
        # a rate that is too large leaves nothing to some words
        for name, part in given.items() if whole else ():
            # what says what the base says is called the base there
            own = found[name if name in found else rule.name]
            assert float(own[row]) == pytest.approx(float(part[target]) / whole, rel=1e-6, abs=1e-9)


@both_kinds
def test_entries_know_their_document_when_several_are_read_side_by_side_or_in_turn(
    models: dict[str, hebblm.LanguageModel], kind: str, tmp_path: Path
) -> None:
    lm, text = models[kind], TEXTS[kind]
    reader = lm.reader("cache", update_every=7, settings={"cache.window": 500})
    [*reader.read_pieces([text], name="first.txt")]
    documents = reader.read([text[: len(text) // 2], text])
    [*reader.read_pieces([text], name="last.txt")]
    reader.save(tmp_path / "reader")
    again = lm.reader(memory=tmp_path / "reader")
    assert again.explain(NEXT[kind], 3, budget=8) == reader.explain(NEXT[kind], 3, budget=8)
    again.read(text)
    seen = set()
    for item in again.explain(NEXT[kind], 6, budget=8):
        for entry in item.entries:
            # Whatever was written in between, the words around are those of the document.
            own = documents[1].tokens
            assert entry.token is not None
            assert own[entry.token].strip() == entry.word.strip()
            assert item.word.strip().startswith(entry.word.strip())
            ids = lm.vocabulary.fresh().encode(text, include=False).ids
            if kind == "pieces":
                assert entry.before == reader.vocabulary.join(
                    ids[max(0, entry.token - AROUND) : entry.token]
                )
            seen.add(entry.document)
    assert None in seen
    assert "last.txt" in seen


def test_a_window_of_the_last_document_stands_where_that_one_was_written(
    models: dict[str, hebblm.LanguageModel],
) -> None:
    reader = models["words"].reader("cache", update_every=5, settings={"cache.window": 500})
    reader.read(["one two three . " * 5, "The function frobnitz returns a list .\n" * 3])
    [item] = [item for item in reader.explain("The function", 3) if item.word == "frobnitz"]
    assert [(entry.before, entry.token) for entry in item.entries] == [
        ("frobnitz returns a list .\nThe function ", 18), ("frobnitz returns a list .\nThe "
            "function ", 10),
        ("The function ", 2),
    ]  # fmt: skip


def test_a_text_that_was_broken_off_counts_as_far_as_it_was_learned(
    models: dict[str, hebblm.LanguageModel],
) -> None:
    reader = models["words"].reader("cache", update_every=4)

    def stop(done: int, total: int) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reader.read("one two three four five six seven eight nine ten .\n", progress=stop)
    reader.read("The function frobnitz returns .\n")
    entries = reader.explain("The function", 1)[0].entries
    assert all(entry.token is not None and entry.token < 8 + 6 for entry in entries)
    with pytest.raises(KeyboardInterrupt):
        reader.read(["one two three four five", "six seven eight nine ten"], progress=stop)
    assert [text.lengths for text in laid_out(reader.journal.record)] == [(14,), (4, 4)]


def test_entries_that_a_memory_forgot_are_left_out(models: dict[str, hebblm.LanguageModel]) -> None:
    reader = models["words"].reader(
        "cache", settings={"memory.capacity": 6, "cache.window": 100}, update_every=3
    )
    reader.read("The function returns a list . The function returns a list .\n")
    found = [entry for item in reader.explain("The function", 3) for entry in item.entries]
    assert found
    assert all(entry.token is not None and entry.token >= 13 - 6 for entry in found)


def test_a_memory_of_texts_knows_where_its_entries_stand(tmp_path: Path) -> None:
    from hebblm.cli.memory import main

    lines = [f"The function f{number} returns a list of {number} items ." for number in range(400)]
    for name in "ab":
        (tmp_path / name).write_text("\n".join(f"{line} {name}" for line in lines) + "\n")
    built = tmp_path / "memory"
    assert (
        main(
            [
                "build",
                "--model",
                "tiny-pydoc-raw",
                "--text",
                *(str(tmp_path / name) for name in "ab"),
                "--output-path",
                str(built),
            ]
        )
        == 0
    )
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("knn", memory=built)
    seen = set()
    for item in reader.explain("The function f7", 4):
        for entry in item.entries:
            name = Path(str(entry.document)).name
            words = (tmp_path / name).read_text().replace("\n", " <eos> ").split()
            assert entry.token is not None
            assert reader.vocabulary.tokenizer.tokenize(words[entry.token]) in (
                [item.word],
                [item.word.lower()],
            )
            assert entry.before.split() == [
                w for w in words[max(0, entry.token - AROUND) : entry.token] if w != "<eos>"
            ]
            seen.add(name)
    assert seen


@pytest.mark.parametrize(
    ("method", "weighed", "parts"),
    [("best", "Gives, %", "kNN-LM, %"), ("hebb", "Closeness", "Hebb, %")],
)
def test_the_command_prints_shares_and_entries(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    weighed: str,
    parts: str,
) -> None:
    from hebblm.cli.read import main

    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "notes.txt").write_text(TEXTS["words"])
    asked = ["--method", method, "--explain", "Call ", "--words", "2", "--update-every", "5"]
    assert main(["tiny-pydoc-raw", str(tmp_path / "notes.txt"), *asked]) in (0, None)
    before, _, after = capsys.readouterr().out.partition("after reading: Call ...")
    assert "before reading: Call ..." in before
    assert "Base, %" in before
    assert "What the memory holds" not in before
    assert weighed in after
    assert parts in after
    assert (
        f"{tmp_path / 'notes.txt'}, token 9  function frobnitz returns a list .⏎Call [frobnitz] "
        "with two" in re.sub("  +", "  ", after)
    )


def test_what_cannot_be_explained_is_refused(models: dict[str, hebblm.LanguageModel]) -> None:
    reader = models["words"].reader("best")
    with pytest.raises(UserError, match="n = 0"):
        reader.explain("Call", 0)
    with pytest.raises(UserError, match="give a string"):
        reader.explain(3)  # type: ignore[arg-type]
    assert math.isclose(
        sum(sum(item.shares.values()) for item in reader.explain("Call", 10**6)), 1.0, abs_tol=0.05
    )


def test_entries_in_equal_text_stand_in_one_row_and_the_heaviest_row_comes_first() -> None:
    entries = tuple(
        MemoryEntry(weight, "a.txt", token, before, " .", "list")
        for weight, token, before in ((0.3, 90, "one"), (0.2, 70, "two"), (0.15, 50, "two"))
    )
    found = Explanation("list", 0.8, 0.1, {"knn": 0.8}, entries, by_kernel_weight=False)
    table = explanation_tables("now", [found], str)[1]
    assert tuple(table.cells()) == (
        ("list", pytest.approx(35), "a.txt, token 70 and 1 more", "two[list] ."),
        ("list", pytest.approx(30), "a.txt, token 90", "one[list] ."),
    )
