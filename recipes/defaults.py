"""Common values for every model: the point of each grid that is best over several texts, and what it costs on each.

    python recipes/defaults.py TUNED.JSON... --transfer OTHER.JSON... --output recipes/results/defaults.json

The files are those of hebblm-tune, with every point that was tried; of several for one text a later one has the word
on the methods that it tried. With ``--shipped`` nothing is chosen: the points are those of the values that hebblm has
as its defaults, of each method whose own was tried on every text. Otherwise a point's loss is the mean of its losses
over the texts it is chosen on. What it loses on a text is its loss there less that of the text's own best point, nats
a token. Texts under ``--transfer`` are looked at with the chosen points, as far as those were tried on them, and have
no part in choosing them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hebblm.evaluation.hyperparameters import defaults as default_values
from hebblm.files import read_json, write_json
from hebblm.report.result import corpus_name

Point = tuple[tuple[str, Any], ...]


def points_of(document: dict[str, Any]) -> dict[str, dict[Point, float]]:
    """Return by method the loss of every point tried, nats a token."""
    return {
        method: {tuple(sorted((k, v) for k, v in row.items() if k != "nll")): float(row["nll"]) for row in tried}
        for method, tried in document["tried"].items()
    }


def choose(texts: dict[str, dict[str, dict[Point, float]]]) -> dict[str, Point]:
    """Return by method the point of the least mean loss over texts that all tried it."""
    chosen = {}
    for method in set.intersection(*(set(text) for text in texts.values())):
        shared = set.intersection(*(set(text[method]) for text in texts.values()))
        if shared:
            chosen[method] = min(sorted(shared), key=lambda p: sum(text[method][p] for text in texts.values()))
    return chosen


def shipped(texts: dict[str, dict[str, dict[Point, float]]]) -> dict[str, Point]:
    """Return by method the point of hebblm's default values, where every text tried it."""
    values, found = default_values(), {}
    for method in set.intersection(*(set(text) for text in texts.values())):
        names = [name for name, _ in next(iter(next(iter(texts.values()))[method]))]
        point = tuple((name, values[name]) for name in names)
        if all(point in text[method] for text in texts.values()):
            found[method] = point
    return found


def losses(chosen: dict[str, Point], text: dict[str, dict[Point, float]]) -> dict[str, dict[str, float]]:
    """Return by method the loss of the chosen point, of the text's own best, and their difference."""
    table = {}
    for method, point in sorted(chosen.items()):
        tried = text.get(method, {})
        if point in tried:
            best = min(tried.values())
            table[method] = {"default": tried[point], "tuned": best, "lost": tried[point] - best}
    return table


def by_text(documents: list[dict[str, Any]]) -> dict[str, dict[str, dict[Point, float]]]:
    """Return by text and method the loss of every point tried, the later of two documents having the word."""
    found: dict[str, dict[str, dict[Point, float]]] = {}
    for document in documents:
        found.setdefault(label(document), {}).update(points_of(document))
    return found


def label(document: dict[str, Any]) -> str:
    """Return the name of a tuning's scenario, with the model's architecture where that is not the usual one."""
    scenario, arch = document["scenario"], document["model"]["arch"]
    source, target = (corpus_name(scenario[side]) for side in ("source", "target"))
    name = target if source == target else f"{source}-to-{target}"
    return name if arch == "awd_lstm" else f"{name}, {arch}"


def main() -> int:
    """Choose the values, and write what was read and found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", nargs="+", type=Path)
    parser.add_argument("--transfer", nargs="*", type=Path, default=[])
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    documents = [read_json(path) for path in (*options.tuned, *options.transfer)]
    tuned, others = documents[: len(options.tuned)], documents[len(options.tuned) :]
    texts, looked_at = by_text(tuned), by_text(others)
    chosen = shipped(texts) if options.shipped else choose(texts)
    result = {
        "schema": "hebblm-defaults/1",
        "values": {name: value for _, point in sorted(chosen.items()) for name, value in point},
        "chosen_on": {name: losses(chosen, text) for name, text in texts.items()},
        "transfer": {name: losses(chosen, text) for name, text in looked_at.items()},
        "texts": {label(document): document["scenario"] for document in documents},
        "provenance": {
            name: [document["provenance"] for document in documents if label(document) == name]
            for name in map(label, documents)
        },
    }
    if options.output is not None:
        write_json(options.output, result)
    json.dump({key: result[key] for key in ("values", "chosen_on", "transfer")}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
