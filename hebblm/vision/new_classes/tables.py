"""The paper's tables on new classes, with its numbers beside those of a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hebblm.report import paper
from hebblm.report.methods import name_of
from hebblm.report.table import Cell, Column, Table
from hebblm.vision.new_classes.scales import family_of
from hebblm.vision.new_classes.top1 import KEYS

_TITLES = {"new": "New", "old": "Old", "overall": "Overall"}
_PER_CENT = 100.0
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
    rows = []
    for name, method in document["methods"].items():
        summary = next(iter(method["conditions"].values()))
        own = [
            cell
            for key in KEYS
            for cell in (*_parts(summary[key]), paper.image(experiment, family, key, name))
        ]
        rows.append((method_name(name), *own))
    columns = [Column("Method")]
    for key in KEYS:
        columns += _accuracy(_TITLES[key])
    title = "Ablation of Hebb" if experiment == "ablation" else "Online adaptation"
    return Table(experiment, _title(document, title), tuple(columns), tuple(rows), _notes(document))


def _incremental(document: Mapping[str, Any], ratio: str) -> Table:
    """Return new, old and overall accuracy after the reported epochs."""
    family = _family(document) if ratio == "1:1" else None
    epochs = document["settings"]["increment"]["reported"]
    rows = []
    for key in KEYS:
        for name, method in document["methods"].items():
            curve = {point["at"]: point for point in method["conditions"][ratio]["curve"]}
            own = [
                cell
                for epoch in epochs
                for cell in (
                    *_parts(curve[epoch][key]),
                    paper.image("incremental", family, str(epoch), key, name),
                )
            ]
            rows.append((_TITLES[key], method_name(name), *own))
    columns = [Column("Classes"), Column("Method")]
    for epoch in epochs:
        columns += [replace(column, best=None) for column in _accuracy(f"Epoch {epoch}")]
    title = _title(document, f"Incremental learning, {ratio}")
    return Table(
        f"incremental-{ratio.replace(':', '-')}", title, tuple(columns), tuple(rows), _notes(document)
    )


def _pretrain(document: Mapping[str, Any]) -> Table:
    """Return the overall accuracy by the number of old classes."""
    family, rows = _family(document), []
    for name, method in document["methods"].items():
        own = [
            cell
            for count, summary in method["conditions"].items()
            for cell in (*_parts(summary["overall"]), paper.image("pretrain-classes", family, count, name))
        ]
        rows.append((method_name(name), *own))
    columns = [Column("Method")]
    for count in document["methods"]["parametric"]["conditions"]:
        columns += _accuracy(f"{count} old classes")
    title = _title(document, "Number of pre-training classes, overall accuracy")
    return Table("pretrain-classes", title, tuple(columns), tuple(rows), _notes(document))


def _sensitivity(document: Mapping[str, Any]) -> Table:
    """Return one row a point of the grid, after the methods beside it."""
    rows = []
    for name, method in document["methods"].items():
        summary = next(iter(method["conditions"].values()))
        point = document["grid"].get(name)
        label = (method_name(name), None, None) if point is None else ("Hebb", point["beta"], point["eta"])
        rows.append((*label, *(cell for key in KEYS for cell in _parts(summary[key]))))
    columns = [Column("Method"), Column("beta", "rate"), Column("eta", "rate")]
    for key in KEYS:
        columns += _accuracy(_TITLES[key])[:2]
    title = _title(document, "Sensitivity of Hebb")
    return Table(
        "sensitivity",
        title,
        tuple(columns),
        tuple(rows),
        (_notes(document)[0], "The paper shows this as a figure without numbers."),
    )


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
    timing = document["settings"]["timing"]
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
        f"{timing['rounds']} rounds in which the methods take turns; ratios within a round. {_machine(document)}.",
        SOURCE,
    )
    return Table("timing", _title(document, "Computation time"), columns, rows, notes)


def paper_ratio(family: str | None, name: str) -> float | None:
    """Return the paper's time of a method as a ratio to Parametric's, or None where it prints none."""
    seconds, alone = (paper.image("timing", family, each) for each in (name, "parametric"))
    return None if seconds is None else seconds / alone


def method_name(name: str) -> str:
    """Return how a method is written."""
    return "Parametric" if name == "parametric" else name_of(name)


def _accuracy(title: str) -> list[Column]:
    """Return the columns of an accuracy in per cent: mean, standard deviation, the paper's."""
    return [
        Column(title, "nll", "max", "%", 2),
        Column("±", "nll", decimals=2),
        Column("paper", "nll", decimals=2),
    ]


def _parts(summary: Mapping[str, float | None] | None) -> tuple[Cell, Cell]:
    """Return mean and standard deviation in per cent, of what may be missing."""
    if summary is None:
        return None, None
    mean, std = summary["mean"], summary["std"]
    return None if mean is None else _PER_CENT * mean, None if std is None else _PER_CENT * std


def _family(document: Mapping[str, Any]) -> str | None:
    """Return the network of the paper that the result's backbone is, or is a narrow variant of, on the same data."""
    return family_of(document["settings"]["backbone"]) if document["data"]["name"] == "CIFAR-100" else None


def _title(document: Mapping[str, Any], title: str) -> str:
    return f"{title}, {document['scale']}"


def _machine(document: Mapping[str, Any]) -> str:
    provenance = document["provenance"]
    return f"Device {provenance['device']}, {provenance['threads']} threads"


def _notes(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a reader must know: data, network, seeds, where the paper's numbers come from."""
    settings, seeds = document["settings"], document["provenance"]["seeds"]
    trained = {entry["pretraining"]["run"]: entry["pretraining"] for entry in document["seeds"]}
    held_out = ", ".join(
        f"{record['held_out_top1']:.1%} on {len(record['old_classes'])} classes"
        for record in trained.values()
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
