"""A run token by token: losses, gains over the base, retrieved neighbours, and all of it as one
HTML page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hebblm.adapt.methods import unaliased
from hebblm.errors import UserError
from hebblm.io.files import write_text
from hebblm.report import tokens
from hebblm.report.methods import BASE, name_of, ordered
from hebblm.report.numbers import display
from hebblm.report.render import HTML, source
from hebblm.report.result import Result
from hebblm.report.sections import scenario_line
from hebblm.report.stored import counted_in
from hebblm.report.tokens import TokenLosses, read_table, recorded
from hebblm.report.units import unit
from hebblm.runtime.spelling import unknown

INSPECTED = "inspect.html"
NEIGHBORS_FILE = "neighbors.parquet"
COMPONENTS_FILE = "components.parquet"
_COMPONENT_KINDS = {
    "position": "whole numbers",
    "method": "text",
    "component": "text",
    "share": "numbers",
}
_KINDS = {
    **dict.fromkeys(("position", "rank", "place"), "whole numbers"),
    "from_stream": "true or false",
    **dict.fromkeys(("label", "context"), "text"),
    **dict.fromkeys(("distance", "closeness"), "numbers"),
}


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A memory entry that a token retrieved."""

    from_stream: bool  # whether it was read in the stream, or else in the training text
    place: int  # of its label in that text, tokens from 0
    label: str  # the word that followed its state
    distance: float  # squared L2 to the query
    closeness: float  # c_k of MbPA, 1 / (eps + distance), scaled as the run scaled it
    context: str  # the words before the label


@dataclass(frozen=True, slots=True)
class Inspection:
    """A run that was logged token by token: its numbers, losses and neighbours."""

    result: Result
    losses: TokenLosses  # of every token under every method
    # by position in the stream, nearest first; empty where they were not logged
    neighbors: dict[int, tuple[Neighbor, ...]]
    # by method and component its share in the probability of each token, from the first one on; of
    # mixtures alone
    components: dict[str, dict[str, list[float]]]

    @classmethod
    def load(cls, folder: Path) -> Inspection:
        """Read the folder of a run."""
        result = Result.load(folder)
        losses = TokenLosses.load(folder / tokens.FILE_NAME, result)
        tokens.check_same_run(result, losses)
        total = losses.words.size
        return cls(
            result,
            losses,
            load_neighbors(folder / NEIGHBORS_FILE, total, result),
            load_components(folder / COMPONENTS_FILE, total, result),
        )

    def methods(self) -> list[str]:
        """Methods that can be compared with the base."""
        others = [method for method in ordered(self.result.methods) if method != BASE]
        if BASE not in self.result.methods or not others:
            evaluated = ",".join(self.result.methods)
            raise UserError(
                f"the run has {evaluated}; evaluate {BASE} and a method to compare with it"
            )
        return others

    def choose(self, method: str | None) -> str:
        """The method asked for, or the best."""
        others = self.methods()
        if method is None:
            return min(others, key=lambda name: self.result.methods[name].nll)
        if method not in others:
            raise unknown(
                "method",
                method,
                others,
                f"choose from those that were evaluated: {', '.join(others)}",
            )
        return method

    def gain(self, method: str) -> NDArray[np.float64]:
        """By how many nats (T,) a method lies below the base; 0 where both losses are infinite."""
        base, other = self.losses.nll[BASE], self.losses.nll[method]
        both = np.isinf(base) & np.isinf(other)
        return np.where(both, 0.0, np.where(both, 0.0, base) - np.where(both, 0.0, other))


def load_neighbors(
    path: Path, total: int, result: Result | None = None
) -> dict[int, tuple[Neighbor, ...]]:
    """Read the file that ``hebblm-eval --log-neighbors`` wrote; without the file there are no
    neighbours.
    """
    if (
        not path.exists()
        and not path.is_symlink()
        and (result is None or recorded(path, result) is None)
    ):
        return {}
    table = read_table(path, _KINDS, result)
    neighbors: dict[int, list[Neighbor]] = {}
    order = table.sort_by([("position", "ascending"), ("rank", "ascending")])
    for row in order.select([name for name in _KINDS if name != "rank"]).to_pylist():
        neighbors.setdefault(row.pop("position"), []).append(Neighbor(**row))
    if neighbors and not 0 <= min(neighbors) <= max(neighbors) < total:
        raise UserError(
            f"{path} has position {max(neighbors)}, but the run has {total} tokens; evaluate again "
            "with log_neighbors"
        )
    return {position: tuple(near) for position, near in neighbors.items()}


def load_components(
    path: Path, total: int, result: Result | None = None
) -> dict[str, dict[str, list[float]]]:
    """Read what parts of methods gave to tokens, as ``hebblm-eval --log-neighbors`` wrote it;
    without it nothing.
    """
    if (
        not path.exists()
        and not path.is_symlink()
        and (result is None or recorded(path, result) is None)
    ):
        return {}
    table = read_table(path, _COMPONENT_KINDS, result).sort_by("position")
    found: dict[str, dict[str, list[float]]] = {}
    for row in table.select([*_COMPONENT_KINDS]).to_pylist():
        shares = found.setdefault(row["method"], {}).setdefault(row["component"], [])
        if row["position"] != len(shares) or row["position"] >= total:
            raise UserError(
                f"{path} has position {row['position']} out of place; evaluate again with "
                "log_neighbors"
            )
        shares.append(row["share"])
    return {method: parts for method, parts in found.items() if len(parts) > 1}


# nats; a token's shade is the number of bounds that its gain or loss reaches
LEVELS = 0.05, 0.25, 1.0, 2.5
_KEY = [
    (f"{kind}{LEVELS.index(bound) + 1}", f"{sign}{bound:g}")
    for kind, sign, bounds in (("l", "\u2212", LEVELS[::-1]), ("g", "+", LEVELS))
    for bound in bounds
]
# tokens, after which a paragraph ends with its line; those out of sight are not laid out
BLOCK = 200
BREAK = "⏎"  # shows an end of line
MAX_PARAGRAPH_TOKENS = 1_000  # tokens of a paragraph that has no end of line


def inspect_page(run: Inspection, *, method: str | None = None, count: int = 20_000) -> str:
    """Return the page of a run, which needs no other file and loads nothing.

    Shading, training counts and marks of new words of the chosen method are in the HTML itself; the
    script adds the choice of another method and the details of a token.
    """
    chosen = run.choose(method)
    if count < 1:
        raise UserError(f"tokens = {count} must be at least 1")
    count = min(count, run.losses.words.size)
    noun = _noun(run)
    title = f"{noun.capitalize()} by {noun}: {run.result.scenario.label}"
    nll = {name: item.loss for name, item in run.result.methods.items()}
    of = f"nats a {unit(run.result)}"
    style, script = source("inspect.css"), source("inspect.js")
    data = json.dumps(_data(run, chosen, count), separators=(",", ":"), ensure_ascii=False)
    return HTML.get_template("inspect.html.j2").render(
        title=title,
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
            "base-uri 'none'; "
            "form-action 'none'"
        ),
        style=Markup(style),
        script=Markup(script),
        lines=_lines(run, count),
        options=[
            (name, f"{name_of(name)} ({display(nll[BASE] - nll[name], 'signed', 3)} {of})")
            for name in run.methods()
        ],
        noun=noun,
        key=_KEY,
        end=BREAK,
        count=count,
        paragraphs=_paragraphs(run, chosen, count),
        data=Markup(data.replace("<", "\\u003c")),
    )


def write_inspection(
    run: Path, path: Path | None = None, *, method: str | None = None, count: int = 20_000
) -> Path:
    """Write the page of a run, by default into its folder, and return its path."""
    return write_text(
        path or run / INSPECTED, inspect_page(Inspection.load(run), method=method, count=count)
    )


def shades(gain: NDArray[np.float64]) -> list[str]:
    """Class of each gain (T,) in nats: ``g1`` to ``g4``, ``l1`` to ``l4``, or none."""
    sizes = np.searchsorted(np.asarray(LEVELS), np.abs(gain), side="right")  # (T,)
    return [
        "" if size == 0 else f"{'g' if value > 0 else 'l'}{size}"
        for size, value in zip(sizes.tolist(), gain.tolist(), strict=True)
    ]


def _hash(content: str) -> str:
    """Return the source expression for an inline element in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _noun(run: Inspection) -> str:
    """Return the noun for the units that the page shows: words, also of a model of pieces."""
    return "word" if run.result.of_pieces else "token"


def _lines(run: Inspection, count: int) -> list[str]:
    by = run.result.provenance
    total = run.losses.words.size
    part = "" if count == total else f" The first {count:,} of {total:,} {_noun(run)}s are shown."
    return [
        scenario_line(run.result),
        "Gain: loss of the base minus loss of the method, nats. Losses are underlined, new words "
        f"dotted.{part}",
        f"{by.get('command', 'unknown command')} (commit {str(by.get('commit'))[:12]})",
    ]


def _paragraphs(
    run: Inspection, method: str, count: int
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the place of each paragraph's first token, and its tokens: blanks before each, its
    text, its classes.
    """
    words, oov = run.losses.words[:count].tolist(), run.losses.oov[:count].tolist()
    written = (
        [f" {word}" for word in words]
        if run.losses.written is None
        else run.losses.written[:count].tolist()
    )
    blanks = [text[: len(text) - len(text.lstrip(" \t\r"))] for text in written]
    shown = [
        BREAK if word == tokens.EOS else text[len(blank) :]
        for word, text, blank in zip(words, written, blanks, strict=True)
    ]
    classes = [
        f"{shade} o".strip() if new else shade
        for shade, new in zip(shades(run.gain(method)[:count]), oov, strict=True)
    ]
    found: list[tuple[str, list[tuple[str, str, str]]]] = []
    start = 0
    for at, token in enumerate(zip(blanks, shown, classes, strict=True)):
        if at == start:
            found.append((f"{at:,}", []))
        found[-1][1].append(token)
        size = at + 1 - start
        if size >= MAX_PARAGRAPH_TOKENS or (size >= BLOCK and token[1] == BREAK):
            start = at + 1
    return found


def _data(run: Inspection, method: str, count: int) -> dict[str, Any]:
    """Return the script's data besides the words, as plain JSON; losses in thousandths of a nat."""
    texts: dict[str, int] = {}
    counts = run.losses.train_counts
    return {
        "base": BASE,
        "noun": _noun(run).capitalize(),
        "counted": counted_in(run.result),
        "chosen": method,
        "levels": LEVELS,
        "methods": [[name, name_of(name)] for name in ordered(run.result.methods)],
        "nll": {
            name: _thousandths(run.losses.nll[name][:count].tolist())
            for name in ordered(run.result.methods)
        },
        "counts": None if counts is None else counts[:count].tolist(),
        "oov": np.flatnonzero(run.losses.oov[:count]).tolist(),
        "logged": bool(run.neighbors),
        "neighbors": {
            at: _neighbors(run.neighbors.get(at, ()), texts)
            for at in range(min(count, max(run.neighbors, default=-1) + 1))
        },
        "texts": list(texts),
        "components": {
            name: [
                [name_of(unaliased(part)), _thousandths(shares[:count])]
                for part, shares in parts.items()
            ]
            for name, parts in run.components.items()
        },
    }


def _thousandths(numbers: Iterable[float]) -> list[int | None]:
    """Losses or shares (T,) as whole thousandths; None for an infinite one."""
    return [None if np.isinf(number) else round(number * 1000) for number in numbers]


def _neighbors(near: Sequence[Neighbor], texts: dict[str, int]) -> list[list[Any]]:
    """Neighbours as lists; contexts are collected once in ``texts``."""
    return [
        [
            int(item.from_stream),
            item.place,
            item.label,
            f"{item.distance:.4g}",
            f"{item.closeness:.3g}",
            texts.setdefault(item.context, len(texts)),
        ]
        for item in near
    ]
