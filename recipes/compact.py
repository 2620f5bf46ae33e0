"""Write committed JSON small: few line breaks, numbers of ten digits, curves as fine as a plot,
nothing unread.

Usage: python -m recipes.compact [FILE_OR_FOLDER...]   (everything committed by default)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hebblm.io.files import CHECKSUM, read_json, sealed, write_text
from hebblm.report.result.schema import SCHEMA as RESULT_SCHEMA
from hebblm.vision.result import OVERALL
from hebblm.vision.result import SCHEMA as VISION_SCHEMA
from recipes.markdown import ROOT

COMMITTED = (ROOT / "recipes", ROOT / "data" / "models" / "tuned")
DIGITS = 10  # no page shows as many
CURVE_DIGITS = 6
POINTS = 60  # of a curve
PICTURED = ("online", "permuted-mnist")  # image experiments whose curves a page shows
LINE = 1000  # characters of a line that is not broken further


def json_files(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the JSON files in some places; links lead to files that are there already."""
    for place in places:
        found = sorted(place.rglob("*.json")) if place.is_dir() else [place]
        yield from (path for path in found if not path.is_symlink())


def compact(path: Path) -> str:
    """Return the compact form of a JSON file; that of the compact form is the same."""
    value = rounded(trimmed(read_json(path)), DIGITS)
    return (
        lines(sealed(value) if f'"{CHECKSUM}"' in path.read_text(encoding="utf-8") else value)
        + "\n"
    )


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a result with curves as fine as a plot shows them, any other document as it is."""
    schema = document.get("schema")
    if schema == RESULT_SCHEMA:
        shorter = {
            name: item | {"running": thin(item["running"])}
            for name, item in document["methods"].items()
        }
    elif schema == VISION_SCHEMA:
        # The scores of the values that were tried; no page shows them.
        tried = _without_unread_scores(rounded(document.get("tuning", {}), CURVE_DIGITS))
        document = {**document, "tuning": tried} if tried else document
        if document["experiment"] == "incremental":
            return document
        shorter = {
            name: _image_method(document["experiment"], item)
            for name, item in document["methods"].items()
        }
    else:
        return document
    return {**document, "methods": shorter}


def _without_unread_scores(tuning: Any, network: bool = False) -> Any:
    """Drop from what was tried the scores that chose nothing and that no page shows.

    Pages show accuracies on old and new classes for the values of the network alone.
    """
    match tuning:
        case list():
            return [_without_unread_scores(item, network) for item in tuning]
        case dict():
            left_out = set()
            if OVERALL in tuning:
                left_out = {"harmonic_mean"} if network else {"harmonic_mean", "old", "new"}
            return {
                key: _without_unread_scores(value, key == "parametric")
                for key, value in tuning.items()
                if key not in left_out
            }
    return tuning


def _image_method(experiment: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return a method of an image experiment without the curves that nothing shows.

    The curves of single seeds are read of incremental learning alone, and those over all seeds of
    what a committed picture shows.
    """
    if "conditions" not in item:
        return item
    conditions = {
        name: {
            **found,
            "curve": thin(found["curve"]) if experiment in PICTURED else [],
            "seeds": [{**seed, "curve": []} for seed in found["seeds"]],
        }
        for name, found in item["conditions"].items()
    }
    return {**item, "conditions": conditions}


def thin(curve: list[Any]) -> list[Any]:
    """Return at most :data:`POINTS` evenly chosen points of a curve, the last one among them."""
    kept = min(POINTS, len(curve))
    chosen = [curve[len(curve) * number // kept - 1] for number in range(1, kept + 1)]
    found: list[Any] = rounded(chosen, CURVE_DIGITS)
    return found


def rounded(value: Any, digits: int) -> Any:
    """Return a JSON value whose broken numbers have so many significant digits."""
    match value:
        case float():
            return float(f"{value:.{digits}g}")
        case list():
            return [rounded(item, digits) for item in value]
        case dict():
            return {key: rounded(item, digits) for key, item in value.items()}
    return value


def lines(value: Any) -> str:
    """Return a JSON value in one line; a long object, or list of objects or lists, has a line for
    each item.
    """
    whole = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    if len(whole) > LINE and isinstance(value, dict):
        items = (
            f"{json.dumps(key, ensure_ascii=False)}:{lines(item)}" for key, item in value.items()
        )
        return "{\n" + ",\n".join(items) + "\n}"
    if len(whole) > LINE and isinstance(value, list) and isinstance(value[0], dict | list):
        return "[\n" + ",\n".join(map(lines, value)) + "\n]"
    return whole


if __name__ == "__main__":
    for file in json_files([Path(name) for name in sys.argv[1:]] or COMMITTED):
        write_text(file, compact(file))
