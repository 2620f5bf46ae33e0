"""Tables of texts: the documents of the one that was read, and the source's own before and
after.
"""

from __future__ import annotations

from hebblm.report.methods import BASE, name_of
from hebblm.report.numbers import difference, perplexity
from hebblm.report.stored import StoredResult, corpus_name
from hebblm.report.table import Cell, Column, Table
from hebblm.report.tables import by_loss, methods_of
from hebblm.runtime.wording import worded

MAX_DOCUMENTS = 20  # documents that a report shows


def document_table(result: StoredResult, most: int | None = MAX_DOCUMENTS) -> Table | None:
    """Return the losses of each document, the worst first; None if the text is a single one."""
    documents = result.extra.get("documents")
    if not documents:
        return None
    names = by_loss(result)
    best = names[0]
    names = list(dict.fromkeys([*names[:2], *(name for name in names if name == BASE)]))
    pieces = "pieces" in documents[0]
    loss, of, count = ("piece_nll", "piece", "pieces") if pieces else ("nll", "token", "tokens")
    worst = sorted(documents, key=lambda document: -document[loss][best])
    columns = [Column("Document", wide=True), Column(count.capitalize(), "count")]
    columns += [Column(name_of(name), "perplexity", "min", f"perplexity a {of}") for name in names]
    measured = all("bits_per_byte" in document for document in documents)
    if measured:
        columns += [Column(name_of(name), "nll", "min", "bits a byte", 3) for name in names]
    rows = [
        (
            document["name"],
            document[count],
            *(perplexity(document[loss][name]) for name in names),
            *(document["bits_per_byte"][name] for name in names if measured),
        )
        for document in worst[:most]
    ]
    shown = (
        f"the {most} worst of {len(documents):,}"
        if most and len(documents) > most
        else "the worst first"
    )
    notes = []
    if most and len(documents) > most:
        notes.append(worded("All documents stand in result.json; by_document=True lists them."))
    return Table(
        "documents", f"Perplexity by document, {shown}", tuple(columns), tuple(rows), tuple(notes)
    )


def forgetting_table(result: StoredResult) -> Table | None:
    """Return perplexity on the source domain's text before and after; None if not requested."""
    measured = [
        (name, item.forgetting) for name, item in methods_of(result) if item.forgetting is not None
    ]
    if not measured:
        return None
    columns = [Column("Method"), Column("Before", "perplexity", "min")]
    for header, gap in (
        ("After", "Forgotten (nats)"),
        ("Memory kept", "Forgotten (nats), memory kept"),
    ):
        columns += [Column(header, "perplexity", "min"), Column(gap, "signed", "min", decimals=3)]
    rows = []
    for name, losses in measured:
        row: list[Cell] = [name_of(name), perplexity(losses.before)]
        for loss in (losses.after, losses.memory_kept):
            row += (
                [None, None]
                if loss is None
                else [perplexity(loss), difference(loss, losses.before)]
            )
        rows.append(tuple(row))
    text = result.extra.get("forgetting", {})
    source = corpus_name(text.get("corpus", result.scenario.source))
    which = (
        f"{text['tokens']:,} tokens of {corpus_name(text['corpus'])} {text['split']}, "
        if text
        else ""
    )
    note = (
        f"{which}read without learning from them. After: the base as the stream left it, with a "
        "memory emptied of the "
        "stream or one that keeps it. What a query adapts is thrown away: a base that stays as "
        "trained forgets nothing."
    )
    return Table(
        "forgetting",
        f"Perplexity on {source} before and after {result.scenario.label}",
        tuple(columns),
        tuple(rows),
        (note,),
    )
