"""The tables of the image experiments, with the paper's numbers next to those of a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from hebblm.report.result.methods import name_of
from hebblm.report.result.numbers import Cell
from hebblm.report.result.record import decode
from hebblm.report.tables.table import Column, Table
from hebblm.vision import paper
from hebblm.vision.result import KEYS, Spread, at_end, harmonic_mean, spread
from hebblm.vision.settings import family_of

SOURCE = f"Paper: {paper.SOURCE}."
PAPER_ORDER = {"hebb": 1, "mbpa": 2, "ewc": 3, "mlp": 4}
"""Of permuted MNIST, best first, from the text on Fig. mnist, which prints no number."""
OPTIMIZERS = {"newton": "Newton steps", "rmsprop": "the paper's RMSprop"}
_NETWORKS = {"parametric": "Parametric", "mlp": "MLP", "ewc": "EWC"}
_TITLES = {"new": "New", "old": "Old", "overall": "Overall"}
_STREAMED = {"late_new": "New, second half", "harmonic_mean": "Harmonic mean"}
_PER_CENT = 100.0

Accuracy = tuple[Mapping[str, float | None] | None, float | None]
"""Mean and standard deviation, where there are any, and the paper's number in per cent."""
Rows = Iterable[tuple[tuple[Cell, ...], Sequence[Accuracy]]]
"""By row, its labels and its accuracies."""


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The tables of a result, in their order; the last one says which values were best at an end of
    a grid.
    """
    found = _tables(document)
    # Made anew of what was tried, as it is read today; results of before it was noted were tuned by
    # another score.
    tuning = decode(document.get("tuning") or {}, "tuning") if "at_end" in document else {}
    if ends := at_end({"": tuning["tried"]} if "tried" in tuning else tuning):
        note = (
            "Best at the least or the largest value tried, so that a better one may lie beyond: "
            f"{', '.join(ends)}."
        )
        found[-1] = replace(found[-1], notes=(*found[-1].notes, note))
    return found


def _tables(document: Mapping[str, Any]) -> list[Table]:
    match document["experiment"]:
        case "permuted-mnist":
            return [_permuted(document)]
        case "incremental":
            ratios = next(iter(document["methods"].values()))["conditions"]
            found = [_incremental(document, ratio) for ratio in ratios]
            return [*found, *(_pairs(document, ratio) for ratio in document.get("pairs", ()))]
        case "pretrain-classes":
            return [_pretrain(document)]
        case "timing":
            return [_timing(document)]
        case "sensitivity":
            return [_sensitivity(document)]
        case _:
            found = [_stream(document)]
            return [*found, *(_pairs(document, count) for count in document.get("pairs", ()))]


def _permuted(document: Mapping[str, Any]) -> Table:
    """One row a method: accuracies, forgetting and transfer, and its place here and in the
    paper.
    """
    methods, settings = document["methods"], document["settings"]
    means = {name: item["average_accuracy"]["mean"] for name, item in methods.items()}
    rows = []
    for name in permuted_methods(document):
        # A single task leaves forgetting and transfer undefined.
        measured = [
            methods[name][key] or {}
            for key in ("average_accuracy", "forgetting", "backward_transfer")
        ]
        numbers = [each.get(part) for each in measured for part in ("mean", "std")]
        stored = name.partition("-")[2] or str(max(settings["stored"]))
        rivals = [mean for other, mean in means.items() if other.partition("-")[2] in ("", stored)]
        place = 1 + sum(mean > means[name] for mean in rivals)
        rows.append(
            (method_name(name), *numbers, str(place), str(PAPER_ORDER[name.partition("-")[0]]))
        )
    columns = (
        Column("Method"),
        Column("Average accuracy", "nll", best="max"),
        Column("±", "nll"),
        Column("Forgetting", "nll", best="min"),
        Column("±", "nll"),
        Column("Backward transfer", "signed", best="max"),
        Column("±", "nll"),
        Column("Order"),
        Column("paper"),
    )
    notes = (
        f"{document['data']['name']}; {settings['tasks']} tasks of {settings['train_samples']:,} "
        "samples, "
        f"{settings['epochs']} epochs. Tested on {settings['test_samples']:,} samples a task after "
        "the last one, "
        f"{settings['curve_samples']:,} of them before, the same for every method; "
        f"{_seeds(document)}.",
        "Shares of right answers after the last task; the number after MbPA and Hebb is the "
        "samples stored of each "
        "task. Forgetting: best accuracy so far minus the last, earlier tasks; backward transfer: "
        "the last minus "
        "that right after learning.",
        "Order: each with what stores as much, MLP and EWC with what stores most. The paper shows "
        "its result as a "
        "figure without numbers and says: EWC much better than MLP, MbPA and Hebb better than EWC, "
        "Hebb better than "
        "MbPA.",
        SOURCE,
    )
    return Table(
        "permuted-mnist", f"Permuted MNIST, {document['scale']}", columns, tuple(rows), notes
    )


def permuted_methods(document: Mapping[str, Any]) -> list[str]:
    """The methods of permuted MNIST in order: the network alone, EWC, then by what is stored."""
    sizes = sorted(document["settings"]["stored"])
    return ["mlp", "ewc", *(f"{kind}-{size}" for kind in ("mbpa", "hebb") for size in sizes)]


def _stream(document: Mapping[str, Any]) -> Table:
    family, experiment = _family(document), document["experiment"]
    title = "Ablation of Hebb" if experiment == "ablation" else "Online adaptation"
    point = next(iter(summaries(document).values())).get("hyperparameters", {})
    if "steps" in point and experiment == "online":
        title += f", {point['steps']:g} steps an interval at {point['lr']:g}"
    rows = [
        (
            (method_name(name),),
            [(summary[key], paper.image(experiment, family, key, name)) for key in KEYS],
        )
        for name, summary in summaries(document).items()
    ]
    table = _table(document, experiment, title, [Column("Method")], _TITLES.values(), rows)
    return _beside(table, list(summaries(document).values()), _STREAMED)


def _beside(table: Table, found: Sequence[Mapping[str, Any]], more: Mapping[str, str]) -> Table:
    """A table with the means of further scores on its right, those that the result has."""
    rows = list(table.rows)
    columns = list(table.columns)
    for key, title in more.items():
        if all(key in summary for summary in found):
            columns.append(Column(title, "nll", "max", "%", 2))
            means = [_per_cent(summary[key], "mean") for summary in found]
            rows = [(*row, mean) for row, mean in zip(rows, means, strict=True)]
    return replace(table, columns=tuple(columns), rows=tuple(rows))


def _pairs(document: Mapping[str, Any], condition: str) -> Table:
    """Differences between methods over the same pictures, in percentage points."""
    rows = []
    for pair in document["pairs"][condition]:
        cells = [_points(pair[key]) for key in KEYS]
        rows.append((f"{method_name(pair['first'])} - {method_name(pair['second'])}", *cells))
    over = document["pairs"][condition][0]["over"]
    notes = (
        f"Percentage points with their 95 % interval over the {over}; * where it leaves out 0."
        + (" It says nothing about other orders and networks." if over == "pictures" else ""),
    )
    columns = (Column("Difference"), *(Column(_TITLES[key]) for key in KEYS))
    name = f"{document['experiment']}-pairs-{condition.replace(':', '-')}"
    which = f", {condition}" if document["experiment"] == "incremental" else ""
    title = f"Differences between methods{which}, {document['scale']}"
    return Table(name, title, columns, tuple(rows), notes)


def _points(interval: Mapping[str, float] | None) -> str | None:
    """An interval in percentage points as text, with a star where it leaves out 0."""
    if interval is None:
        return None
    mean, low, high = (_PER_CENT * interval[end] for end in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f}){'*' if low > 0 or high < 0 else ''}"


def _incremental(document: Mapping[str, Any], ratio: str) -> Table:
    family = _family(document) if ratio == "1:1" else None
    epochs = document["settings"]["increment"]["reported"]
    rows = []
    for key in KEYS:
        for name, method in document["methods"].items():
            curve = {point["at"]: point[key] for point in method["conditions"][ratio]["curve"]}
            own = [
                (curve[epoch], paper.image("incremental", family, str(epoch), key, name))
                for epoch in epochs
            ]
            rows.append(((_TITLES[key], method_name(name)), own))
    for name, method in document["methods"].items():
        found = method["conditions"][ratio]
        if "harmonic_mean" in found:
            both = [(_balance_after(found["seeds"], epoch), None) for epoch in epochs]
            rows.append((("Harmonic mean", method_name(name)), both))
    name, title = f"incremental-{ratio.replace(':', '-')}", f"Incremental learning, {ratio}"
    heads = [f"Epoch {epoch}" for epoch in epochs]
    return _table(
        document, name, title, [Column("Classes"), Column("Method")], heads, rows, contest=False
    )


def _balance_after(seeds: Sequence[Mapping[str, Any]], epoch: int) -> Spread | None:
    """The harmonic mean of the accuracies on old and on new classes after an epoch, over seeds."""
    points = [point for seed in seeds for point in seed["curve"] if point["at"] == epoch]
    return spread([harmonic_mean(point["old"] or 0.0, point["new"] or 0.0) for point in points])


def _pretrain(document: Mapping[str, Any]) -> Table:
    experiment, family = "pretrain-classes", _family(document)
    rows = []
    for name, method in document["methods"].items():
        each = method["conditions"].items()
        own = [
            (summary["overall"], paper.image(experiment, family, count, name))
            for count, summary in each
        ]
        rows.append(((method_name(name),), own))
    heads = [f"{count} old classes" for count in document["methods"]["parametric"]["conditions"]]
    title = "Number of pre-training classes, overall accuracy"
    return _table(document, experiment, title, [Column("Method")], heads, rows)


def _sensitivity(document: Mapping[str, Any]) -> Table:
    rows = []
    for name, summary in summaries(document).items():
        point = document["grid"].get(name)
        labels = (
            (method_name(name), None, None)
            if point is None
            else ("Hebb", point["beta"], point["eta"])
        )
        rows.append((labels, [(summary[key], None) for key in KEYS]))
    columns = [Column("Method"), Column("beta", "amount"), Column("eta", "amount")]
    return _table(
        document,
        "sensitivity",
        "Sensitivity of Hebb",
        columns,
        _TITLES.values(),
        rows,
        printed=False,
    )


def _timing(document: Mapping[str, Any]) -> Table:
    family, rows = _family(document), []
    for name, method in document["methods"].items():
        ratios = [method["ratio"][part] for part in ("median", "min", "max")]
        rows.append(
            (method_name(name), method["seconds"]["median"], *ratios, paper_ratio(family, name))
        )
    heads = ("Times Parametric", "least", "most", "in the paper")
    columns = (
        Column("Method"),
        Column("Seconds", "nll", decimals=2),
        *(Column(h, "nll", decimals=3) for h in heads),
    )
    timing, by = document["settings"]["timing"], document["provenance"]
    notes = (
        f"{document['data']['name']}, {document['settings']['backbone']}, {timing['samples']:,} "
        "pictures. Medians of "
        f"{timing['rounds']} rounds in which the methods take turns; ratios within a round. "
        f"Device {by['device']}, {by['threads']} threads.",
        SOURCE,
    )
    return Table("timing", f"Computation time, {document['scale']}", columns, tuple(rows), notes)


def paper_ratio(family: str | None, name: str) -> float | None:
    """The paper's time of a method as a ratio to Parametric's, or None where it prints none."""
    seconds, alone = (paper.image("timing", family, each) for each in (name, "parametric"))
    return None if seconds is None else seconds / alone


def method_name(name: str) -> str:
    """Return a method's printed name in the experiments, followed by its point of a grid."""
    stem, _, point = name.partition(" ")
    return f"{_NETWORKS.get(stem) or name_of(stem)} {point}".rstrip()


def summaries(document: Mapping[str, Any]) -> dict[str, Any]:
    """Each method's summary under the only condition."""
    return {
        name: next(iter(method["conditions"].values()))
        for name, method in document["methods"].items()
    }


def _table(
    document: Mapping[str, Any],
    name: str,
    title: str,
    labels: Iterable[Column],
    heads: Iterable[str],
    rows: Rows,
    *,
    contest: bool = True,
    printed: bool = True,
) -> Table:
    """A table of accuracies in per cent, three columns a head, or two where the paper prints no
    such number.
    """
    best = "max" if contest else None
    columns, cells = list(labels), []
    for head in heads:
        beside = [
            Column(header, "nll", decimals=2) for header in (("±", "paper") if printed else ("±",))
        ]
        columns += [Column(head, "nll", best, "%", 2), *beside]  # type: ignore[arg-type]
    for own, accuracies in rows:
        each = (
            [_per_cent(found, "mean"), _per_cent(found, "std"), number]
            for found, number in accuracies
        )
        cells.append((*own, *chain.from_iterable(three[: 3 if printed else 2] for three in each)))
    return Table(
        name,
        f"{title}, {document['scale']}",
        tuple(columns),
        tuple(cells),
        _notes(document, printed),
    )


def _per_cent(summary: Mapping[str, float | None] | None, part: str) -> float | None:
    share = None if summary is None else summary[part]
    return None if share is None else _PER_CENT * share


def _family(document: Mapping[str, Any]) -> str | None:
    """The network of the paper that the result's backbone is, or is a narrow variant of, on the
    same data.
    """
    return (
        family_of(document["settings"]["backbone"])
        if document["data"]["name"] == "CIFAR-100"
        else None
    )


def _notes(document: Mapping[str, Any], printed: bool) -> tuple[str, str]:
    """What a reader must know: data, network, seeds, where the paper's numbers come from."""
    settings = document["settings"]
    trained = {entry["pretraining"]["run"]: entry["pretraining"] for entry in document["seeds"]}
    held_out = ", ".join(
        f"{record['held_out_top1']:.1%} on {len(record['old_classes'])} classes"
        for record in trained.values()
    ).replace("%", " %")
    shared = (
        " The seeds share the classes and the pre-trained network; they draw other pictures and "
        "orders."
    )
    return (
        f"{document['data']['name']}, {settings['backbone']}; Top-1 in per cent; "
        f"{_seeds(document)}. Pre-trained for "
        f"{sum(settings['pretraining']['epochs'])} epochs: {held_out} of the held-out pictures "
        "right. MbPA, and Hebb "
        f"over it, by {OPTIMIZERS[settings['adaptation'].get('mbpa_optimizer', 'rmsprop')]}."
        + _learning(document)
        + (
            shared
            if settings["pretrainings"] == "shared" and len(document["provenance"]["seeds"]) > 1
            else ""
        ),
        f"{SOURCE} Its networks are the full ones, pre-trained for 350 epochs."
        if printed
        else "The paper shows this as a figure without numbers.",
    )


def _learning(document: Mapping[str, Any]) -> str:
    """How the network went on learning, in one sentence."""
    experiment, settings = document["experiment"], document["settings"]
    section = settings.get("increment" if experiment == "incremental" else "online", {})
    if "optimizer" not in section:
        return ""  # a result from before there was a choice
    point = next(iter(next(iter(document["methods"].values()))["conditions"].values()))
    values = ", ".join(f"{name} {value:g}" for name, value in point["hyperparameters"].items())
    return f" The network goes on learning by {section['optimizer']}: {values}."


def _seeds(document: Mapping[str, Any]) -> str:
    count = len(document["provenance"]["seeds"])
    return "one seed" if count == 1 else f"{count} seeds, ± their standard deviation"
