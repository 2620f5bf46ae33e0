"""Why words are suggested: the share of each part of a method, and the memory entries that weigh
most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.components import Speakers, mixture_weights, speaking
from hebblm.adapt.methods import DYNAMIC, unaliased
from hebblm.adapt.methods.predictor import Predictor
from hebblm.memory.ngram_rows import NGramRows
from hebblm.online.effort import SearchEffort
from hebblm.online.expected import Expected
from hebblm.reader.history import WrittenSpan
from hebblm.reader.own_text import TextStart
from hebblm.reader.session import ReaderSession
from hebblm.reader.spans import WrittenText
from hebblm.reader.suggest import expected_words
from hebblm.report.result.methods import name_of
from hebblm.report.result.numbers import Cell
from hebblm.report.tables.table import Column, Row, Table
from hebblm.text.vocabulary import Vocabulary

MOST = 3  # entries of a word
AROUND = 8  # tokens before and after an entry

Floats = npt.NDArray[np.float64]


class MemoryEntry(NamedTuple):
    """A memory entry that speaks for a word.

    Args:
        weight: the part of the word's probability that it gives, by cache, kNN-LM, Mixture and
            n-gram. For a method without any of these: its closeness, as a share of the closeness of
            all neighbours.
        document: name of the document that it was read in; None if that has no name or is not
            known.
        token: its number in that document, from 0; None if not known.
        before: the text before it, up to it.
        after: the text after it.
        word: the word there, or its first piece.
    """

    weight: float
    document: str | None
    token: int | None
    before: str
    after: str
    word: str


class Explanation(NamedTuple):
    """Why a word is suggested.

    Args:
        word: the word.
        probability: its probability after adaptation.
        unadapted: its probability under the trained base, with rows of zeros for new words.
        shares: what each part of the method adds to the probability, by name; they sum to
            it.
        entries: the memory entries that weigh most, the heaviest first.
        by_kernel_weight: whether the entries are weighed by closeness.
    """

    word: str
    probability: float
    unadapted: float
    shares: dict[str, float]
    entries: tuple[MemoryEntry, ...]
    by_kernel_weight: bool


def entry_weights(
    speakers: Speakers, batch: EvalBatch, written: WrittenText, words: Sequence[int]
) -> list[Floats]:
    """Return how much each memory entry (M,) gives to each of some words after a single query.

    Entries that the memory has dropped are left out.
    """
    every = np.zeros(len(written.ids))
    for part in speakers.near:
        np.add.at(every, part.at.cpu().numpy(), part.weights.cpu().numpy())
    for part in speakers.recent:
        count = min(len(written.stream), len(part.at))
        at, weights = written.stream[len(written.stream) - count :], part.weights.cpu().numpy()
        np.add.at(every, at, weights[len(weights) - count :])
    given = [np.where(written.ids == word, every, 0.0) for word in words]
    for ngram, share in speakers.ngrams:
        counted = batch.context.ngrams
        assert counted is not None
        contexts, nothing = (
            ngram.rows(batch).contexts.repeat(len(words), 0),
            np.zeros(len(words), dtype=np.int64),
        )
        once = share * counted.per_occurrence(
            NGramRows(contexts, np.array(words), nothing, nothing)
        )
        for word, weights, cumulative in zip(words, given, once.T.cumsum(1), strict=True):
            there = np.flatnonzero(written.ids == word)
            weights[there] += cumulative[written.matches(there, contexts[0])]
    return given


def explain(
    session: ReaderSession,
    texts: Sequence[WrittenSpan],
    context: str,
    n: int,
    *,
    typed: str,
    effort: SearchEffort,
    beginning: TextStart | None,
) -> list[Explanation]:
    """Return explanations of the words that :func:`~hebblm.reader.suggest.suggest` suggests; see
    :meth:`hebblm.Reader.explain`.

    Args:
        session: where it stands, the context follows.
        texts: the texts in its memory, in the order of writing.
        context: as for ``suggest``; so are the others.
        n: number of words.
        typed: first letters of the word.
        effort: as for ``suggest``.
        beginning: None if the session stands within a text.
    """
    batch, expected = expected_words(
        session, context, n, typed=typed, effort=effort, beginning=beginning
    )
    written = WrittenText.of(session.memory, texts, session.model)
    base = DYNAMIC if session.uses_dynamic_base else "base"
    with torch.no_grad():
        return explained(
            session.predictor, batch, expected.words, session.vocabulary, written, base=base
        )


def explained(
    predictor: Predictor,
    batch: EvalBatch,
    expected: Sequence[Expected],
    vocabulary: Vocabulary,
    written: WrittenText,
    base: str,
) -> list[Explanation]:
    """Return explanations of suggested words after a single query.

    Args:
        predictor: the method's rule.
        batch: holds the query.
        expected: the suggested words.
        vocabulary: the model's vocabulary.
        written: the text that the memory was written from.
        base: name of the base.
    """
    parts, speakers = mixture_weights(predictor, batch), speaking(predictor, batch)
    explanations = []
    firsts = list(
        dict.fromkeys(first for expected_word in expected for first in expected_word.rest)
    )
    weighed = dict(zip(firsts, entry_weights(speakers, batch, written, firsts), strict=True))
    for word, rest in expected:
        given = {
            base if name == "base" else name: sum(
                float(part[first]) * share for first, share in rest.items()
            )
            for name, part in parts.items()
        }
        weights = sum(
            (weighed[first] * share for first, share in rest.items()), np.zeros(len(written.ids))
        )
        there = np.flatnonzero(weights)
        # among equal weights the latest
        heaviest = there[np.lexsort((-there, -weights[there]))[:MOST]]
        entries = tuple(
            _remembered(entry, weights[entry], written, vocabulary) for entry in heaviest.tolist()
        )
        explanations.append(Explanation(*word, given, entries, speakers.by_kernel_weight))
    return explanations


def _remembered(
    entry: int, weight: float, written: WrittenText, vocabulary: Vocabulary
) -> MemoryEntry:
    before, after = (vocabulary.join(ids.tolist()) for ids in written.around(entry, AROUND))
    if vocabulary.grows:  # tokens are words, without the spaces between them
        before, after = f"{before} " if before else "", f" {after}" if after else ""
    document = int(written.documents[entry])
    known = document >= 0
    return MemoryEntry(
        float(weight),
        written.names[document] if known else None,
        int(written.tokens[entry]) if known else None,
        before,
        after,
        vocabulary[int(written.ids[entry])],
    )


def explanation_tables(
    title: str, explanations: Sequence[Explanation], shown: Callable[[str], str]
) -> list[Table]:
    """Return tables of the words' shares and of the entries that speak for them; ``shown`` formats
    a text.

    Entries of a word in equal text stand in one row, which gives what they give together.
    """
    columns = [
        Column("Next word"),
        Column("Adapted, %", "percent"),
        Column("Unadapted, %", "percent"),
    ]
    if explanations:
        for name in explanations[0].shares:
            columns.append(Column(f"{name_of(unaliased(name))}, %", "percent", name=name))
    rows: list[Row] = []
    for item in explanations:
        row: dict[str, Cell] = {
            "Next word": shown(item.word),
            "Adapted, %": 100 * item.probability,
            "Unadapted, %": 100 * item.unadapted,
        }
        for name, share in item.shares.items():
            row[name] = 100 * share
        rows.append(row)
    tables = [Table("explained", title, columns, rows)]
    rows = []
    for item in explanations:
        alike: dict[str, list[MemoryEntry]] = {}
        for entry in item.entries:
            alike.setdefault(shown(_marked(entry)), []).append(entry)
        given = {text: sum(entry.weight for entry in same) for text, same in alike.items()}
        for text in sorted(given, key=given.__getitem__, reverse=True):
            place = _place(alike[text][0])
            if len(alike[text]) > 1:
                place += f" and {len(alike[text]) - 1} more"
            rows.append(
                {
                    "Next word": shown(item.word),
                    "Weight": 100 * given[text],
                    "Where it was read": place,
                    "Text": text,
                }
            )
    if rows:
        header = "Closeness, %" if explanations[0].by_kernel_weight else "Gives, %"
        columns = [
            Column("Next word"),
            Column(header, "percent", name="Weight"),
            Column("Where it was read"),
            Column("Text", wide=True),
        ]
        tables.append(Table("entries", "What the memory holds of these words", columns, rows))
    return tables


def _marked(entry: MemoryEntry) -> str:
    """Return the text around an entry, with its word or first piece in brackets."""
    core = entry.word.strip() or entry.word
    space = entry.word[: entry.word.index(core)]
    return f"{entry.before}{space}[{core}]{entry.after}"


def _place(entry: MemoryEntry) -> str:
    if entry.token is None:
        return "not known"
    token = f"token {entry.token:,}"
    return token if entry.document is None else f"{entry.document}, {token}"
