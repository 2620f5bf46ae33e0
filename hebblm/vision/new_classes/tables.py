"""The paper's tables on new classes, with its numbers beside those of a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

from hebblm.report import paper
from hebblm.report.methods import name_of
from hebblm.report.table import Cell, Column, Table
from hebblm.vision.new_classes.result import KEYS
from hebblm.vision.new_classes.settings import family_of

_TITLES = {"new": "New", "old": "Old", "overall": "Overall"}
_PER_CENT = 100.0
_flat = chain.from_iterable
SOURCE = f"Paper: {paper.SOURCE}."


def tables(document: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a result of any of these experiments."""
    match document["experiment"]:
        case "incremental":
            ratios = list(next(iter(document["methods"].values()))["conditions"])
            return [_incremental(document, ratio) for ratio in ratios]
        case "pretrain-classes":
            return [_pretrain(document)]
        case "timing":
            return [_timing(document)]
        case "sensitivity":
            return [_sensitivity(document)]
        case _:
            return [_stream(document)]


def _stream(document: Mapping[str, Any]) -> Table:
    """Return new, old and overall accuracy, for the online experiment and the ablation."""
    family, experiment = _family(document), document["experiment"]
    rows = [
        (
            method_name(name),
            *_flat(_cells(summary[key], paper.image(experiment, family, key, name)) for key in KEYS),
        )
        for name, summary in summaries(document).items()
    ]
    title = "Ablation of Hebb" if experiment == "ablation" else "Online adaptation"
    columns = [Column("Method"), *_flat(_accuracy(_TITLES[key]) for key in KEYS)]
    return _table(document, experiment, title, columns, rows)


def _incremental(document: Mapping[str, Any], ratio: str) -> Table:
    """Return new, old and overall accuracy after the reported epochs."""
    family = _family(document) if ratio == "1:1" else None
    epochs = document["settings"]["increment"]["reported"]
    rows = []
    for key in KEYS:
        for name, method in document["methods"].items():
            curve = {point["at"]: point for point in method["conditions"][ratio]["curve"]}
            printed = {epoch: paper.image("incremental", family, str(epoch), key, name) for epoch in epochs}
            own = _flat(_cells(curve[epoch][key], printed[epoch]) for epoch in epochs)
            rows.append((_TITLES[key], method_name(name), *own))
    accuracies = _flat(_accuracy(f"Epoch {epoch}", best=None) for epoch in epochs)
    columns = [Column("Classes"), Column("Method"), *accuracies]
    label = f"incremental-{ratio.replace(':', '-')}"
    return _table(document, label, f"Incremental learning, {ratio}", columns, rows)


def _pretrain(document: Mapping[str, Any]) -> Table:
    """Return the overall accuracy by the number of old classes."""
    family, rows = _family(document), []
    for name, method in document["methods"].items():
        own = _flat(
            _cells(summary["overall"], paper.image("pretrain-classes", family, count, name))
            for count, summary in method["conditions"].items()
        )
        rows.append((method_name(name), *own))
    counts = document["methods"]["parametric"]["conditions"]
    columns = [Column("Method"), *_flat(_accuracy(f"{count} old classes") for count in counts)]
    title = "Number of pre-training classes, overall accuracy"
    return _table(document, "pretrain-classes", title, columns, rows)


def _sensitivity(document: Mapping[str, Any]) -> Table:
    """Return one row a point of the grid, after the methods beside it."""
    rows = []
    for name, summary in summaries(document).items():
        point = document["grid"].get(name)
        label = (method_name(name), None, None) if point is None else ("Hebb", point["beta"], point["eta"])
        rows.append((*label, *_flat(_cells(summary[key], None)[:2] for key in KEYS)))
    labels = (Column("Method"), Column("beta", "rate"), Column("eta", "rate"))
    columns = [*labels, *_flat(_accuracy(_TITLES[key])[:2] for key in KEYS)]
    table = _table(document, "sensitivity", "Sensitivity of Hebb", columns, rows)
    return replace(table, notes=(table.notes[0], "The paper shows this as a figure without numbers."))


def _timing(document: Mapping[str, Any]) -> Table:
    """Return the time of a run and its ratio to that of the network alone."""
    family = _family(document)
    rows = tuple(
        (
            method_name(name),
            method["seconds"]["median"],
            method["ratio"]["median"],
            method["ratio"]["min"],
            method["ratio"]["max"],
            paper_ratio(family, name),
        )
        for name, method in document["methods"].items()
    )
    timing, by = document["settings"]["timing"], document["provenance"]
    columns = (
        Column("Method"),
        Column("Seconds", "nll", decimals=2),
        Column("Times Parametric", "nll", decimals=3),
        Column("least", "nll", decimals=3),
        Column("most", "nll", decimals=3),
        Column("in the paper", "nll", decimals=3),
    )
    notes = (
        f"{document['data']['name']}, {document['settings']['backbone']}, {timing['samples']:,} pictures. Medians of "
        f"{timing['rounds']} rounds in which the methods take turns; ratios within a round. "
        f"Device {by['device']}, {by['threads']} threads.",
        SOURCE,
    )
    return Table("timing", f"Computation time, {document['scale']}", columns, rows, notes)


def paper_ratio(family: str | None, name: str) -> float | None:
    """Return the paper's time of a method as a ratio to Parametric's, or None where it prints none."""
    seconds, alone = (paper.image("timing", family, each) for each in (name, "parametric"))
    return None if seconds is None else seconds / alone


def method_name(name: str) -> str:
    """Return how a method is written."""
    return "Parametric" if name == "parametric" else name_of(name)


def _accuracy(title: str, best: Literal["max"] | None = "max") -> list[Column]:
    """Return the columns of an accuracy in per cent: mean, standard deviation, the paper's."""
    return [
        Column(title, "nll", best, "%", 2),
        Column("±", "nll", decimals=2),
        Column("paper", "nll", decimals=2),
    ]


def _cells(summary: Mapping[str, float | None] | None, printed: float | None) -> tuple[Cell, Cell, Cell]:
    """Return mean and standard deviation in per cent, of what may be missing, and the paper's."""
    mean, std = (None, None) if summary is None else (summary["mean"], summary["std"])
    return None if mean is None else _PER_CENT * mean, None if std is None else _PER_CENT * std, printed


def summaries(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return each method's summary under the only condition."""
    return {name: next(iter(method["conditions"].values())) for name, method in document["methods"].items()}


def _table(
    document: Mapping[str, Any],
    name: str,
    title: str,
    columns: Iterable[Column],
    rows: Iterable[tuple[Cell, ...]],
) -> Table:
    """Return a table with the scale in its title and what a reader must know below it."""
    return Table(name, f"{title}, {document['scale']}", tuple(columns), tuple(rows), _notes(document))


def _family(document: Mapping[str, Any]) -> str | None:
    """Return the network of the paper that the result's backbone is, or is a narrow variant of, on the same data."""
    return family_of(document["settings"]["backbone"]) if document["data"]["name"] == "CIFAR-100" else None


def _notes(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a reader must know: data, network, seeds, where the paper's numbers come from."""
    settings, seeds = document["settings"], document["provenance"]["seeds"]
    trained = {entry["pretraining"]["run"]: entry["pretraining"] for entry in document["seeds"]}
    held_out = ", ".join(
        f"{record['held_out_top1']:.1%} on {len(record['old_classes'])} classes" for record in trained.values()
    ).replace("%", " %")
    shared = settings["pretrainings"] == "shared" and len(seeds) > 1
    many = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds, ± their standard deviation"
    return (
        f"{document['data']['name']}, {settings['backbone']}; Top-1 in per cent; {many}. Pre-trained for "
        f"{sum(settings['pretraining']['epochs'])} epochs: {held_out} of the held-out pictures right."
        + (
            " The seeds share the classes and the pre-trained network; they draw other pictures and orders."
            if shared
            else ""
        ),
        f"{SOURCE} Its networks are the full ones, pre-trained for 350 epochs.",
    )
