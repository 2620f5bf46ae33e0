"""Tables of texts and words: documents, the source's text before and after, words that changed
most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hebblm.report.result.methods import BASE, name_of, ordered, without_base
from hebblm.report.result.numbers import Cell, Kind, difference, perplexity
from hebblm.report.result.schema import StoredResult, corpus_name, counted_in
from hebblm.report.result.tokens import EOS, TokenLosses
from hebblm.report.tables.overall import by_loss, methods_of
from hebblm.report.tables.table import Column, Row, Table
from hebblm.runtime.wording import worded

MAX_DOCUMENTS = 20  # documents that a report shows
BREAK = "⏎ (line break)"


def document_table(result: StoredResult, most: int | None = MAX_DOCUMENTS) -> Table | None:
    """Return the losses of each document, the worst first; None if the text is a single one."""
    documents = result.extra.get("documents")
    if not documents:
        return None
    best = by_loss(result)[0]
    shown = by_loss(result)[:2]
    if BASE in result.methods and BASE not in shown:
        shown.append(BASE)
    if "pieces" in documents[0]:
        loss, of = "piece_nll", "piece"
    else:
        loss, of = "nll", "token"
    columns = [Column("Document", wide=True), Column(f"{of.capitalize()}s", "count", name="Units")]
    columns += _document_columns(shown, f"perplexity a {of}", "perplexity")
    measured = all("bits_per_byte" in document for document in documents)
    if measured:
        columns += _document_columns(shown, "bits a byte", "nll")
    rows = []
    for document in sorted(documents, key=lambda document: -document[loss][best])[:most]:
        row: dict[str, Cell] = {"Document": document["name"], "Units": document[f"{of}s"]}
        for name in shown:
            row[f"{name} perplexity"] = perplexity(document[loss][name])
            if measured:
                row[f"{name} nll"] = document["bits_per_byte"][name]
        rows.append(row)
    title = "Perplexity by document, the worst first"
    notes = []
    if len(rows) < len(documents):
        title = f"Perplexity by document, the {most} worst of {len(documents):,}"
        notes.append(worded("All documents stand in result.json; by_document=True lists them."))
    return Table("documents", title, columns, rows, notes)


def _document_columns(methods: Sequence[str], head: str, kind: Kind) -> list[Column]:
    columns = []
    for name in methods:
        key = f"{name} {kind}"
        columns.append(Column(name_of(name), kind, "min", head, decimals=3, name=key))
    return columns


def forgetting_table(result: StoredResult) -> Table | None:
    """Return perplexity on the source domain's text before and after; None if not requested."""
    rows = []
    for name, item in methods_of(result):
        losses = item.forgetting
        if losses is None:
            continue
        row: dict[str, Cell] = {
            "Method": name_of(name),
            "Before": perplexity(losses.before),
            "After": perplexity(losses.after),
            "Forgotten (nats)": difference(losses.after, losses.before),
        }
        if losses.memory_kept is not None:
            row["Memory kept"] = perplexity(losses.memory_kept)
            row["Forgotten (nats), memory kept"] = difference(losses.memory_kept, losses.before)
        rows.append(row)
    if not rows:
        return None
    columns = [
        Column("Method"),
        Column("Before", "perplexity", "min"),
        Column("After", "perplexity", "min"),
        Column("Forgotten (nats)", "signed", "min", decimals=3),
        Column("Memory kept", "perplexity", "min"),
        Column("Forgotten (nats), memory kept", "signed", "min", decimals=3),
    ]
    source = corpus_name(result.scenario.source)
    which = ""
    text = result.extra.get("forgetting")
    if text:
        source = corpus_name(text["corpus"])
        which = f"{text['tokens']:,} tokens of {source} {text['split']}, "
    note = (
        f"{which}read without learning from them. After: the base as the stream left it, with a "
        "memory emptied of the stream or one that keeps it. What a query adapts is thrown away: a "
        "base that stays as trained forgets nothing."
    )
    title = f"Perplexity on {source} before and after {result.scenario.label}"
    return Table("forgetting", title, columns, rows, [note])


def word_table(result: StoredResult, tokens: TokenLosses, top: int = 15) -> Table | None:
    """Words on which the best method gains and loses most against the unadapted model.

    The gain of a word is summed over its occurrences, in nats. Words with an infinite loss are left
    out.
    """
    others = without_base(ordered(result.methods))
    if BASE not in result.methods or not others:
        return None
    best = min(others, key=lambda method: result.methods[method].nll)
    finite = np.isfinite(tokens.nll[BASE]) & np.isfinite(tokens.nll[best])
    # (T,)
    gains = np.where(finite, tokens.nll[BASE], 0.0) - np.where(finite, tokens.nll[best], 0.0)
    words, first, where, times = np.unique(
        tokens.words, return_index=True, return_inverse=True, return_counts=True
    )
    totals = np.bincount(where, weights=gains, minlength=words.size)  # (types,)
    order = np.argsort(-totals, kind="stable")
    gaining = [index for index in order[:top] if totals[index] > 0]
    losing = [index for index in order[::-1][:top] if totals[index] < 0]
    rows: list[Row] = []
    for index in gaining + losing[::-1]:
        at = first[index]
        row: dict[str, Cell] = {
            "Word": BREAK if words[index] == EOS else str(words[index]),
            "Occurrences": int(times[index]),
            "Gain (nats)": float(totals[index]),
            "Per occurrence": float(totals[index] / times[index]),
        }
        if tokens.train_counts is not None:
            row["Count"] = int(tokens.train_counts[at])
            row["New word"] = "yes" if tokens.oov[at] else "no"
        rows.append(row)
    columns = [Column("Word"), Column("Occurrences", "count")]
    if tokens.train_counts is not None:
        columns.append(Column(f"In {counted_in(result)}", "count", name="Count"))
        columns.append(Column("New word"))
    columns.append(Column("Gain (nats)", "signed", decimals=1))
    columns.append(Column("Per occurrence", "signed", decimals=2))
    title = f"Words that changed most under {name_of(best)} on {result.scenario.label}"
    note = "Gain over the base, summed over all occurrences."
    return Table("words", title, columns, rows, [note])
