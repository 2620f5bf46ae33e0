"""Table and figure of permuted MNIST, beside what the paper says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hebblm.report.methods import PLOTTED, Look, looks
from hebblm.report.table import Column, Table
from hebblm.vision.curves import Line, draw

FIGURE = "permuted-mnist.png"

PAPER_ORDER = {"hebb": 1, "mbpa": 2, "ewc": 3, "mlp": 4}
"""Best first, from the text on Fig. mnist, which prints no number."""

NETWORKS = {"mlp": Look("MLP", "#555555"), "ewc": Look("EWC", "#332288")}
_LINES = ("-", "--", ":", "-.")  # by how much is stored, most first


def figures(document: Mapping[str, Any], most: int = PLOTTED) -> dict[str, tuple[str, Figure]]:
    """Return the plot of a result: by its file name, what it shows and the figure, of ``most`` lines (0 for all)."""
    return {FIGURE: ("Mean accuracy over the tasks learnt so far", curve_figure(document, most))}


def summary_table(document: Mapping[str, Any]) -> Table:
    """Return one row a method: accuracies, forgetting and transfer, and its place here and in the paper."""
    methods = document["methods"]
    places = _places(document)
    rows = tuple(
        (
            look.name,
            item["average_accuracy"]["mean"],
            item["average_accuracy"]["std"],
            *(
                (item[key] or {}).get(part)  # nothing where a single task leaves it undefined
                for key in ("forgetting", "backward_transfer")
                for part in ("mean", "std")
            ),
            str(places[name]),
            str(PAPER_ORDER[name.partition("-")[0]]),
        )
        for name, look in _looks(document).items()
        for item in (methods[name],)
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
    settings, seeds = document["settings"], document["provenance"]["seeds"]
    notes = (
        f"{document['data']['name']}; {settings['tasks']} tasks of {settings['train_samples']:,} samples, "
        f"{settings['epochs']} epochs. Tested on {settings['test_samples']:,} samples a task after the last one, "
        f"{settings['curve_samples']:,} of them before, the same for every method; "
        + ("one seed." if len(seeds) == 1 else f"{len(seeds)} seeds, ± their standard deviation."),
        "Shares of right answers after the last task; the number behind MbPA and Hebb is the samples stored of each "
        "task. Forgetting: best accuracy so far minus the last, earlier tasks; backward transfer: the last minus "
        "that right after learning.",
        "Order: each with what stores as much, MLP and EWC with what stores most. The paper shows its result as a "
        "figure without numbers and says: EWC much better than MLP, MbPA and Hebb better than EWC, Hebb better than "
        "MbPA.",
        "Paper: Mi, Lin and Faltings, IJCAI 2021.",
    )
    return Table("permuted-mnist", f"Permuted MNIST, {document['scale']}", columns, rows, notes)


def curve_figure(document: Mapping[str, Any], most: int = PLOTTED) -> Figure:
    """Return the mean accuracy over the tasks learnt so far, ``most`` lines or, for 0, one a method (Fig. mnist)."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axis = figure.subplots()
    lines = []
    for name, look in _looks(document).items():
        points = document["methods"][name]["curve"]
        places = range(1, len(points) + 1)
        lines.append(Line(look, places, [(point["mean"], point["std"]) for point in points]))
    draw(axis, lines, most=most)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlim(1, max(2, document["settings"]["tasks"]))
    axis.set_xlabel("Tasks learnt so far")
    axis.set_ylabel("Mean accuracy on them")
    axis.set_title(f"Permuted MNIST, {document['scale']}", loc="left", fontweight="bold")
    return figure


def _looks(document: Mapping[str, Any]) -> dict[str, Look]:
    """Return name, colour and line of each method: the network alone, EWC, then by what is stored."""
    sizes = sorted(document["settings"]["stored"], reverse=True)
    found = dict(NETWORKS)
    for kind, look in looks(("mbpa", "hebb")).items():
        for size in sorted(sizes):
            line = _LINES[sizes.index(size) % len(_LINES)]
            found[f"{kind}-{size}"] = Look(f"{look.name}-{size}", look.color, line)
    return found


def _places(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of each method by average accuracy, among those that store as much."""
    means = {name: item["average_accuracy"]["mean"] for name, item in document["methods"].items()}
    size = max(document["settings"]["stored"])

    def rivals(name: str) -> list[float]:
        stored = name.partition("-")[2] or str(size)
        return [mean for other, mean in means.items() if other.partition("-")[2] in ("", stored)]

    return {name: 1 + sum(mean > means[name] for mean in rivals(name)) for name in means}
