"""The tables that a researcher came for, built from results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from hebblm.report.methods import name_of, ordered
from hebblm.report.numbers import Kind
from hebblm.report.parts import ALL, gap_notes
from hebblm.report.result import MethodResult, Result
from hebblm.report.table import Cell, Column, Table

Item = tuple[str, MethodResult]
Said = tuple[Column, Callable[[str, MethodResult], Cell]]
_METHOD = Column("Method")
_WITHIN: tuple[tuple[str, Kind, str], ...] = (("Perplexity", "perplexity", "perplexity"),)
_ACROSS: tuple[tuple[str, Kind, str], ...] = (("Nats", "nll", "nll"), ("OOV nats", "nll", "oov_nll"))


def method_table(
    name: str,
    title: str,
    items: Sequence[Item],
    columns: Sequence[Said],
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with a row a method: what it is called, and what each column says of it.

    Args:
        name: of the table.
        title: of the table.
        items: the methods with their numbers, in the order of the rows.
        columns: each with what it takes from a method.
        notes: below the table.
    """
    rows = tuple((name_of(item[0]), *(say(*item) for _, say in columns)) for item in items)
    return Table(name, title, (_METHOD, *(column for column, _ in columns)), rows, tuple(notes))


def with_values(items: Sequence[Item], columns: Sequence[Said]) -> list[Said]:
    """Return the columns in which any method has a value."""
    return [(column, say) for column, say in columns if any(say(*item) is not None for item in items)]


def comparison_table(result: Result) -> Table:
    """Return every method with its loss overall, on new words and on known words, and its speed, the best first.

    Queries whose neighbours' loss rose are counted where there are any.
    """
    items = [(name, result.methods[name]) for name in by_loss(result)]
    word = "word" if result.of_pieces else ""
    columns = loss_columns(result)
    if result.scenario.oov_tokens:
        columns += [
            (Column("OOV nats", "nll", "min", word), lambda _, item: item.oov_nll),
            (Column("Known nats", "nll", "min", word), lambda _, item: item.in_vocabulary_nll),
        ]
    columns.append(speed_column(result, "max"))
    if any(map(_rose, result.methods.values())):
        columns.append((Column("Loss rose", "count"), lambda _, item: _rose(item)))
    columns += with_values(items, text_columns(result))
    title = f"Methods on {result.scenario.label}"
    return method_table("comparison", title, items, columns, (*lost_notes(result), *fast_notes(result)))


def loss_columns(result: Result) -> list[Said]:
    """Return perplexity and nats of what is predicted one after the other: pieces of words, or words."""
    header, unit = ("PPL", "piece") if result.of_pieces else ("Perplexity", "")
    return [
        (
            Column(header, "perplexity", "min", unit),
            lambda _, item: item.perplexity if item.piece_perplexity is None else item.piece_perplexity,
        ),
        (Column("Nats", "nll", "min", unit), lambda _, item: item.loss),
    ]


def text_columns(result: Result) -> list[Said]:
    """Return what a text costs whatever its tokens are, where they are not its words; words where it has some."""
    word = Column("PPL", "perplexity", "min", "word")
    bits = Column("Bits", "nll", "min", "byte", decimals=3)
    if not result.of_pieces:
        word, bits = Column("Word perplexity", "perplexity", "min"), Column("Bits/byte", "nll", "min")
    return [
        (bits, lambda _, item: None if _is_plain(item) else item.bits_per_byte),
        (word, lambda _, item: None if _is_plain(item) or item.words_perplexity == math.inf else item.words_perplexity),
    ]


def speed_column(result: Result, best: Literal["max"] | None = None) -> Said:
    """Return how many tokens or pieces a second are read."""
    header = "Pieces/s" if result.of_pieces else "Tokens/s"
    return Column(header, "amount", best), lambda _, item: item.tokens_per_second


def lost_notes(result: Result) -> list[str]:
    """Return how much of the text the tokenizer loses, where it does: bits a byte do not pay for it."""
    extra = result.scenario.extra
    if not extra.get("lost_bytes"):
        return []
    share = 100 * extra["lost_bytes"] / extra["bytes"]
    return [
        f"The tokenizer loses at least {share:.3g} % of the text's bytes, so bits a byte are too low. "
        "Do not compare them with those of another model."
    ]


def _rose(item: MethodResult) -> int | None:
    """Return the queries whose neighbours' loss rose; None where that was not checked."""
    return item.stabilized_queries if item.rose_queries is None else item.rose_queries


def _is_plain(item: MethodResult) -> bool:
    """Say whether tokens are the words of the text, so that perplexity a word would say the same again."""
    words = item.words_perplexity
    return item.piece_nll is None and (words is None or math.isclose(words, item.perplexity, rel_tol=1e-9))


def fast_notes(result: Result) -> tuple[str, ...]:
    """Return what the fast form of MbPA was measured to cost, the most of any method."""
    found = [item.extra["fast_error"] for item in result.methods.values() if "fast_error" in item.extra]
    if not found:
        return ()
    worst = max(found, key=lambda error: float(error["mean"]))
    return (
        f"MbPA's fast form against its exact one on {worst['queries']:,} queries, one in a thousand: "
        f"{worst['mean']:.5f} nats a token on average, {worst['max']:.4f} at most.",
    )


def frequency_table(result: Result) -> Table | None:
    """Return perplexity by method and training count, and over all tokens; None where the counts are not known.

    Tokens a bucket stand in the header. Every method scored the same stream, so the buckets are those of the first one;
    a method evaluated with other buckets is left out and named in a note.
    """
    items = methods_of(result)
    shape = _shape(items[0][1])
    if not shape:
        return None
    alike = [(method, item) for method, item in items if _shape(item) == shape]
    different = [name_of(method) for method, item in items if _shape(item) != shape]
    rows = [(name_of(name), *(part.perplexity for part in item.frequency), item.perplexity) for name, item in alike]
    notes = gap_notes((item.frequency, item.nll) for _, item in alike)
    if different:
        notes.append(f"Evaluated with other buckets: {', '.join(different)}.")
    title = f"Perplexity by training count on {result.scenario.label}"
    return Table("frequency", title, by_bucket("Training count", "perplexity", shape), tuple(rows), tuple(notes))


def by_bucket(first: str, kind: Kind, shape: Sequence[tuple[str, int]]) -> tuple[Column, ...]:
    """Return the columns of a table by bucket, all tokens last, the number of tokens in the header.

    Args:
        first: heads the column of the methods.
        kind: of the numbers.
        shape: name and tokens of each bucket.
    """
    buckets = (*shape, (ALL, sum(tokens for _, tokens in shape)))
    return (
        Column(first, subheader="tokens"),
        *(Column(label, kind, "min", tokens, 3) for label, tokens in buckets),
    )


def side_by_side(results: Mapping[str, Result]) -> Table:
    """Return methods by scenarios: perplexity, and across domains the loss overall and on new words.

    Args:
        results: by label; the labels head the columns.
    """
    methods = ordered(method for result in results.values() for method in result.methods)
    shown = [
        (result.methods, Column(header, kind, "min", label), field)
        for label, result in results.items()
        for header, kind, field in (_ACROSS if result.scenario.oov_tokens else _WITHIN)
    ]
    rows = tuple(
        (name_of(method), *(getattr(items.get(method), field, None) for items, _, field in shown)) for method in methods
    )
    texts = {(each.scenario.target, each.scenario.split, each.scenario.tokens) for each in results.values()}
    notes = (
        () if len(texts) == 1 else ("The runs are of different texts or lengths: losses compare within a run alone.",)
    )
    return Table("scenarios", "Methods by scenario", (_METHOD, *(column for _, column, _ in shown)), rows, notes)


def by_loss(result: Result) -> list[str]:
    """Return the methods, the lowest loss first; those that are equal in the project's order."""
    return sorted(ordered(result.methods), key=lambda name: result.methods[name].loss)


def methods_of(result: Result) -> list[Item]:
    """Return the methods of a result with their numbers, in the project's order."""
    return [(method, result.methods[method]) for method in ordered(result.methods)]


def _shape(item: MethodResult) -> list[tuple[str, int]]:
    """Return the buckets of a method without their losses."""
    return [(bucket.bucket, bucket.tokens) for bucket in item.frequency]
