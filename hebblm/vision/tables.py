"""The tables of the image experiments, with the paper's numbers next to those of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hebblm.report.result.methods import name_of
from hebblm.report.result.numbers import Cell
from hebblm.report.result.record import decode
from hebblm.report.tables.table import Column, Row, Table
from hebblm.vision import paper
from hebblm.vision.paper import family_of
from hebblm.vision.result import END, KEYS, SCORES, Spread, at_end, harmonic_mean, spread

SOURCE = f"Paper: {paper.SOURCE}."
PAPER_ORDER = {"hebb": 1, "mbpa": 2, "ewc": 3, "mlp": 4}
"""Of permuted MNIST, best first, from the text on Fig. mnist, which prints no number."""
OPTIMIZERS = {"newton": "Newton steps", "rmsprop": "the paper's RMSprop"}
TITLES = {"new": "New", "old": "Old", "overall": "Overall"}
_NETWORKS = {"parametric": "Parametric", "mlp": "MLP", "ewc": "EWC"}
_STREAMED = {"late_new": "New, second half", "harmonic_mean": "Harmonic mean"}
_PER_CENT = 100.0
_METHOD = Column("Method")


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The tables of a result, in their order; the last one says which values were best at an end of
    a grid.
    """
    shown = _tables(document)
    # Made anew of what was tried, as it is read today; results of before it was noted were tuned by
    # another score.
    if "at_end" not in document:
        return shown
    tuning = decode(document.get("tuning") or {}, "tuning")
    if "tried" in tuning:
        tuning = {"": tuning["tried"]}
    ends = at_end(tuning)
    if ends:
        note = (
            "Best at the least or the largest value tried, so that a better one may lie beyond: "
            f"{', '.join(ends)}."
        )
        shown[-1] = replace(shown[-1], notes=[*shown[-1].notes, note])
    return shown


def _tables(document: Mapping[str, Any]) -> list[Table]:
    match document["experiment"]:
        case "permuted-mnist":
            return [_permuted(document)]
        case "incremental":
            shown = []
            for ratio in conditions(document):
                shown.append(_incremental(document, ratio))
        case "pretrain-classes":
            return [_pretrain(document)]
        case "timing":
            return [_timing(document)]
        case "sensitivity":
            return [_sensitivity(document)]
        case _:
            shown = [_stream(document), *_network_values(document)]
    for condition in document.get("pairs", ()):
        shown.append(_pairs(document, condition))
    return shown


def conditions(document: Mapping[str, Any]) -> list[str]:
    """The conditions of a result, such as ``2:1``, or ``50`` old classes."""
    return list(next(iter(document["methods"].values()))["conditions"])


def summaries(document: Mapping[str, Any]) -> dict[str, Any]:
    """Each method's summary under the only condition."""
    by_method = {}
    for name, method in document["methods"].items():
        by_method[name] = next(iter(method["conditions"].values()))
    return by_method


def method_name(name: str) -> str:
    """Return a method's printed name in the experiments, followed by its point of a grid."""
    stem, _, point = name.partition(" ")
    return f"{_NETWORKS.get(stem) or name_of(stem)} {point}".rstrip()


def permuted_methods(document: Mapping[str, Any]) -> list[str]:
    """The methods of permuted MNIST in order: the network alone, EWC, then by what is stored."""
    names = ["mlp", "ewc"]
    for kind in ("mbpa", "hebb"):
        for size in sorted(document["settings"]["stored"]):
            names.append(f"{kind}-{size}")
    return names


def paper_ratio(family: str | None, name: str) -> float | None:
    """The paper's time of a method as a ratio to Parametric's, or None where it prints none."""
    seconds = paper.image("timing", family, name)
    if seconds is None:
        return None
    ratio: float = seconds / paper.image("timing", family, "parametric")
    return ratio


def _permuted(document: Mapping[str, Any]) -> Table:
    """One row a method: accuracies, forgetting and transfer, and its place here and in the
    paper.
    """
    settings = document["settings"]
    scores = {
        "average_accuracy": Column("Average accuracy", "nll", "max", name="average_accuracy"),
        "forgetting": Column("Forgetting", "nll", "min", name="forgetting"),
        "backward_transfer": Column("Backward transfer", "signed", "max", name="backward_transfer"),
    }
    columns = [_METHOD]
    for key, column in scores.items():
        columns.append(column)
        columns.append(Column("±", "nll", name=f"{key} ±"))
    columns.append(Column("Order"))
    columns.append(Column("paper"))
    rows = []
    for name in permuted_methods(document):
        row: dict[str, Cell] = {
            "Method": method_name(name),
            "Order": str(_rank(document, name)),
            "paper": str(PAPER_ORDER[name.partition("-")[0]]),
        }
        for key in scores:
            # A single task leaves forgetting and transfer undefined.
            measured = document["methods"][name][key] or {}
            row[key] = measured.get("mean")
            row[f"{key} ±"] = measured.get("std")
        rows.append(row)
    notes = (
        f"{document['data']['name']}; {settings['tasks']} tasks of {settings['train_samples']:,} "
        f"samples, {settings['epochs']} epochs. Tested on {settings['test_samples']:,} samples a "
        f"task after the last one, {settings['curve_samples']:,} of them before, the same for "
        f"every method; {_seeds(document)}.",
        "Shares of right answers after the last task; the number after MbPA and Hebb is the "
        "samples stored of each task. Forgetting: best accuracy so far minus the last, earlier "
        "tasks; backward transfer: the last minus that right after learning.",
        "Order: each with what stores as much, MLP and EWC with what stores most. The paper shows "
        "its result as a figure without numbers and says: EWC much better than MLP, MbPA and Hebb "
        "better than EWC, Hebb better than MbPA.",
        SOURCE,
    )
    return Table("permuted-mnist", f"Permuted MNIST, {document['scale']}", columns, rows, notes)


def _rank(document: Mapping[str, Any], name: str) -> int:
    """The rank of a method among those that store as much, 1 for the highest accuracy."""
    means = {}
    for other, item in document["methods"].items():
        means[other] = item["average_accuracy"]["mean"]
    stored = name.partition("-")[2] or str(max(document["settings"]["stored"]))
    rank = 1
    for other, mean in means.items():
        if other.partition("-")[2] in ("", stored) and mean > means[name]:
            rank += 1
    return rank


def _stream(document: Mapping[str, Any]) -> Table:
    family = _family(document)
    experiment = document["experiment"]
    by_method = summaries(document)
    title = "Online adaptation"
    if experiment == "ablation":
        title = "Ablation of Hebb"
    point = next(iter(by_method.values())).get("hyperparameters", {})
    if "steps" in point and experiment == "online":
        steps = "1 step" if point["steps"] == 1 else f"{point['steps']:g} steps"
        title += f", {steps} an interval at {point['lr']:g}"
    online = document["settings"].get("online", {})
    if online.get("rebuilt"):
        title += f", keys computed anew every {online['rebuilt']} intervals"
    if online.get("norms", "batch") != "batch":
        title += f", norms {online['norms']}"
    columns = [_METHOD]
    columns += _accuracy_columns(TITLES)
    more = {}
    for key, header in _STREAMED.items():
        if all(key in summary for summary in by_method.values()):
            more[key] = header
            columns.append(Column(header, "nll", "max", "%", 2, name=key))
    rows = []
    for name, summary in by_method.items():
        row: dict[str, Cell] = {"Method": method_name(name)}
        for key in KEYS:
            row |= _accuracy_cells(key, summary[key], paper.image(experiment, family, key, name))
        for key in more:
            row[key] = _per_cent(summary[key], "mean")
        rows.append(row)
    return _table(document, experiment, title, columns, rows)


def _network_values(document: Mapping[str, Any]) -> list[Table]:
    """How right the network alone is at each of the values that it chose from, on held-out
    pictures.
    """
    shown = []
    for condition, tried in (document.get("tuning") or {}).items():
        points = (tried or {}).get("parametric", [])
        if len(points) < 2 or END not in points[0]:
            continue
        values = [name for name in points[0] if name not in SCORES]
        columns = [Column(f"online.{name}", "amount", name=name) for name in values]
        accuracies = {**TITLES, END: "Overall, second half"}
        for key, title in accuracies.items():
            columns.append(Column(title, "nll", "max", "%", 2, name=key))
        rows: list[Row] = []
        for point in points:
            row: dict[str, Cell] = {name: point[name] for name in values}
            for key in accuracies:
                row[key] = _PER_CENT * point[key]
            rows.append(row)
        online = document["settings"]["online"]
        note = (
            f"The network alone on a stream of {online['chosen_on']:,} held-out pictures of one "
            "seed; the best over all classes in the second half is taken."
        )
        title = f"The network's values online, {document['scale']}"
        shown.append(Table(f"network-{condition}", title, columns, rows, [note]))
    return shown


def _incremental(document: Mapping[str, Any], ratio: str) -> Table:
    family = _family(document) if ratio == "1:1" else None
    epochs = document["settings"]["increment"]["reported"]
    columns = [Column("Classes"), _METHOD]
    columns += _accuracy_columns({f"{epoch}": f"Epoch {epoch}" for epoch in epochs}, contest=False)
    rows = []
    for key in KEYS:
        for name, method in document["methods"].items():
            curve = {point["at"]: point[key] for point in method["conditions"][ratio]["curve"]}
            row: dict[str, Cell] = {"Classes": TITLES[key], "Method": method_name(name)}
            for epoch in epochs:
                printed = paper.image("incremental", family, str(epoch), key, name)
                row |= _accuracy_cells(f"{epoch}", curve[epoch], printed)
            rows.append(row)
    for name, method in document["methods"].items():
        if "harmonic_mean" in method["conditions"][ratio]:
            row = {"Classes": "Harmonic mean", "Method": method_name(name)}
            for epoch in epochs:
                balance = _balance_after(method["conditions"][ratio]["seeds"], epoch)
                row |= _accuracy_cells(f"{epoch}", balance)
            rows.append(row)
    name = f"incremental-{ratio.replace(':', '-')}"
    return _table(document, name, f"Incremental learning, {ratio}", columns, rows)


def _balance_after(seeds: Sequence[Mapping[str, Any]], epoch: int) -> Spread | None:
    """The harmonic mean of the accuracies on old and on new classes after an epoch, over seeds."""
    means = []
    for seed in seeds:
        for point in seed["curve"]:
            if point["at"] == epoch:
                means.append(harmonic_mean(point["old"] or 0.0, point["new"] or 0.0))
    return spread(means)


def _pretrain(document: Mapping[str, Any]) -> Table:
    experiment = "pretrain-classes"
    family = _family(document)
    columns = [_METHOD]
    columns += _accuracy_columns({count: f"{count} old classes" for count in conditions(document)})
    rows = []
    for name, method in document["methods"].items():
        row: dict[str, Cell] = {"Method": method_name(name)}
        for count, summary in method["conditions"].items():
            printed = paper.image(experiment, family, count, name)
            row |= _accuracy_cells(count, summary["overall"], printed)
        rows.append(row)
    title = "Number of pre-training classes, overall accuracy"
    return _table(document, experiment, title, columns, rows)


def _sensitivity(document: Mapping[str, Any]) -> Table:
    columns = [_METHOD, Column("beta", "amount"), Column("eta", "amount")]
    columns += _accuracy_columns(TITLES, printed=False)
    rows = []
    for name, summary in summaries(document).items():
        row: dict[str, Cell] = {"Method": method_name(name)}
        if name in document["grid"]:
            row["Method"] = "Hebb"
            row |= document["grid"][name]
        for key in KEYS:
            row[key] = _per_cent(summary[key], "mean")
            row[f"{key} ±"] = _per_cent(summary[key], "std")
        rows.append(row)
    return _table(document, "sensitivity", "Sensitivity of Hebb", columns, rows, printed=False)


def _pairs(document: Mapping[str, Any], condition: str) -> Table:
    """Differences between methods over the same pictures, in percentage points."""
    pairs = document["pairs"][condition]
    columns = [Column("Difference")]
    for key in KEYS:
        columns.append(Column(TITLES[key], name=key))
    rows = []
    for pair in pairs:
        names = f"{method_name(pair['first'])} - {method_name(pair['second'])}"
        row: dict[str, Cell] = {"Difference": names}
        for key in KEYS:
            row[key] = _points(pair[key])
        rows.append(row)
    over = pairs[0]["over"]
    note = f"Percentage points with their 95 % interval over the {over}; * where it leaves out 0."
    if over == "pictures":
        note += " It says nothing about other orders and networks."
    which = ""
    if document["experiment"] == "incremental":
        which = f", {condition}"
    name = f"{document['experiment']}-pairs-{condition.replace(':', '-')}"
    title = f"Differences between methods{which}, {document['scale']}"
    return Table(name, title, columns, rows, [note])


def _points(interval: Mapping[str, float] | None) -> str | None:
    """An interval in percentage points as text, with a star where it leaves out 0."""
    if interval is None:
        return None
    mean = _PER_CENT * interval["mean"]
    low = _PER_CENT * interval["low"]
    high = _PER_CENT * interval["high"]
    star = "*" if low > 0 or high < 0 else ""
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f}){star}"


def _timing(document: Mapping[str, Any]) -> Table:
    columns = [
        _METHOD,
        Column("Seconds", "nll", decimals=2),
        Column("Times Parametric", "nll", decimals=3),
        Column("least", "nll", decimals=3),
        Column("most", "nll", decimals=3),
        Column("in the paper", "nll", decimals=3),
    ]
    rows: list[Row] = []
    for name, method in document["methods"].items():
        rows.append(
            {
                "Method": method_name(name),
                "Seconds": method["seconds"]["median"],
                "Times Parametric": method["ratio"]["median"],
                "least": method["ratio"]["min"],
                "most": method["ratio"]["max"],
                "in the paper": paper_ratio(_family(document), name),
            }
        )
    timing = document["settings"]["timing"]
    by = document["provenance"]
    notes = (
        f"{document['data']['name']}, {document['settings']['backbone']}, {timing['samples']:,} "
        f"pictures. Medians of {timing['rounds']} rounds in which the methods take turns; ratios "
        f"within a round. Device {by['device']}, {by['threads']} threads.",
        SOURCE,
    )
    return Table("timing", f"Computation time, {document['scale']}", columns, rows, notes)


def _table(
    document: Mapping[str, Any],
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    printed: bool = True,
) -> Table:
    """A table of accuracies in per cent, and what a reader must know of it."""
    source = "The paper shows this as a figure without numbers."
    if printed:
        source = f"{SOURCE} Its networks are the full ones, pre-trained for 350 epochs."
    notes = (_origin(document), source)
    return Table(name, f"{title}, {document['scale']}", columns, rows, notes)


def _accuracy_columns(
    titles: Mapping[str, str], *, contest: bool = True, printed: bool = True
) -> list[Column]:
    """Columns of accuracies in per cent by their key: mean, deviation and, where the paper prints
    such numbers, the paper's.
    """
    columns = []
    for key, title in titles.items():
        column = Column(title, "nll", None, "%", 2, name=key)
        if contest:
            column = replace(column, best="max")
        columns.append(column)
        columns.append(Column("±", "nll", decimals=2, name=f"{key} ±"))
        if printed:
            columns.append(Column("paper", "nll", decimals=2, name=f"{key} paper"))
    return columns


def _accuracy_cells(
    key: str, accuracy: Mapping[str, float | None] | None, printed: float | None = None
) -> dict[str, Cell]:
    """The values of an accuracy's columns; the paper's number is in per cent."""
    return {
        key: _per_cent(accuracy, "mean"),
        f"{key} ±": _per_cent(accuracy, "std"),
        f"{key} paper": printed,
    }


def _per_cent(summary: Mapping[str, float | None] | None, part: str) -> float | None:
    if summary is None:
        return None
    share = summary[part]
    if share is None:
        return None
    return _PER_CENT * share


def _family(document: Mapping[str, Any]) -> str | None:
    """The network of the paper that the result's backbone is, or is a narrow variant of, on the
    same data.
    """
    if document["data"]["name"] != "CIFAR-100":
        return None
    return family_of(document["settings"]["backbone"])


def _origin(document: Mapping[str, Any]) -> str:
    """Data, network and seeds of a result, as a note."""
    settings = document["settings"]
    trained = {entry["pretraining"]["run"]: entry["pretraining"] for entry in document["seeds"]}
    held_out = []
    for record in trained.values():
        right = f"{100 * record['held_out_top1']:.1f} %"
        held_out.append(f"{right} on {len(record['old_classes'])} classes")
    epochs = sum(settings["pretraining"]["epochs"])
    optimizer = OPTIMIZERS[settings["adaptation"].get("mbpa_optimizer", "rmsprop")]
    text = (
        f"{document['data']['name']}, {settings['backbone']}; Top-1 in per cent; "
        f"{_seeds(document)}. Pre-trained for {epochs} epochs: {', '.join(held_out)} of the "
        f"held-out pictures right. MbPA, and Hebb over it, by {optimizer}."
    )
    text += _learning(document)
    if settings["pretrainings"] == "shared" and len(document["provenance"]["seeds"]) > 1:
        text += (
            " The seeds share the classes and the pre-trained network; they draw other pictures "
            "and orders."
        )
    return text


def _learning(document: Mapping[str, Any]) -> str:
    """How the network went on learning, in one sentence."""
    section = "online"
    if document["experiment"] == "incremental":
        section = "increment"
    optimizer = document["settings"].get(section, {}).get("optimizer")
    if optimizer is None:
        return ""  # a result from before there was a choice
    point = next(iter(next(iter(document["methods"].values()))["conditions"].values()))
    values = ", ".join(f"{name} {value:g}" for name, value in point["hyperparameters"].items())
    return f" The network goes on learning by {optimizer}: {values}."


def _seeds(document: Mapping[str, Any]) -> str:
    count = len(document["provenance"]["seeds"])
    if count == 1:
        return "one seed"
    return f"{count} seeds, ± their standard deviation"
