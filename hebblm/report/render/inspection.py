"""The page of a run token by token: each shaded by its gain, with its losses and neighbours."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hebblm.adapt.methods import unaliased
from hebblm.errors import UserError
from hebblm.io.files import write_text
from hebblm.report.render.table import HTML, source
from hebblm.report.result.methods import BASE, name_of, ordered
from hebblm.report.result.numbers import display
from hebblm.report.result.schema import counted_in
from hebblm.report.result.tokens import EOS, Inspection, Neighbor
from hebblm.report.tables.facts import scenario_line
from hebblm.report.tables.units import unit

INSPECTED = "inspect.html"
# nats; a token's shade is the number of bounds that its gain or loss reaches
LEVELS = (0.05, 0.25, 1.0, 2.5)
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
    options = []
    base = run.result.methods[BASE].loss
    for name in run.methods():
        gain = display(base - run.result.methods[name].loss, "signed", 3)
        options.append((name, f"{name_of(name)} ({gain} nats a {unit(run.result)})"))
    style = source("inspect.css")
    script = source("inspect.js")
    data = json.dumps(_data(run, chosen, count), separators=(",", ":"), ensure_ascii=False)
    return HTML.get_template("inspect.html.j2").render(
        title=title,
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        style=Markup(style),
        script=Markup(script),
        lines=_lines(run, count),
        options=options,
        noun=noun,
        key=_key(),
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
    classes = []
    for size, value in zip(sizes.tolist(), gain.tolist(), strict=True):
        if size == 0:
            classes.append("")
        elif value > 0:
            classes.append(f"g{size}")
        else:
            classes.append(f"l{size}")
    return classes


def _key() -> list[tuple[str, str]]:
    """Return the class and the bound of each shade, from the largest loss to the largest gain."""
    losses = []
    gains = []
    for level, bound in enumerate(LEVELS, 1):
        losses.append((f"l{level}", f"\u2212{bound:g}"))
        gains.append((f"g{level}", f"+{bound:g}"))
    return losses[::-1] + gains


def _hash(content: str) -> str:
    """Return the source expression for an inline element in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _noun(run: Inspection) -> str:
    """Return the noun for the units that the page shows: words, also of a model of pieces."""
    return "word" if run.result.of_pieces else "token"


def _lines(run: Inspection, count: int) -> list[str]:
    by = run.result.provenance
    total = run.losses.words.size
    part = ""
    if count < total:
        part = f" The first {count:,} of {total:,} {_noun(run)}s are shown."
    return [
        scenario_line(run.result),
        "Gain: loss of the base minus loss of the method, nats. Losses are underlined, new words "
        f"dotted.{part}",
        f"{by.get('command', 'unknown command')} (commit {str(by.get('commit'))[:12]})",
    ]


def _paragraphs(
    run: Inspection, method: str, count: int
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the place of each paragraph's first token, and its tokens: spaces before each, its
    text, its classes.
    """
    written = run.losses.written
    classes = shades(run.gain(method)[:count])
    paragraphs: list[tuple[str, list[tuple[str, str, str]]]] = []
    start = 0
    for at, word in enumerate(run.losses.words[:count].tolist()):
        text = f" {word}"
        if written is not None:
            text = written[at]
        shown = text.lstrip(" \t\r")
        spaces = text[: len(text) - len(shown)]
        if word == EOS:
            shown = BREAK
        marks = classes[at]
        if run.losses.oov[at]:
            marks = f"{marks} o".strip()
        if at == start:
            paragraphs.append((f"{at:,}", []))
        paragraphs[-1][1].append((spaces, shown, marks))
        size = at + 1 - start
        if size >= MAX_PARAGRAPH_TOKENS or (size >= BLOCK and shown == BREAK):
            start = at + 1
    return paragraphs


def _data(run: Inspection, method: str, count: int) -> dict[str, Any]:
    """Return the script's data besides the words, as plain JSON; losses in thousandths of a nat."""
    texts: dict[str, int] = {}
    counts = run.losses.train_counts  # (T,)
    methods = ordered(run.result.methods)
    logged = min(count, max(run.neighbors, default=-1) + 1)
    components: dict[str, list[list[Any]]] = {}
    for name, parts in run.components.items():
        components[name] = []
        for part, shares in parts.items():
            components[name].append([name_of(unaliased(part)), _thousandths(shares[:count])])
    return {
        "base": BASE,
        "noun": _noun(run).capitalize(),
        "counted": counted_in(run.result),
        "chosen": method,
        "levels": LEVELS,
        "methods": [[name, name_of(name)] for name in methods],
        "nll": {name: _thousandths(run.losses.nll[name][:count].tolist()) for name in methods},
        "counts": None if counts is None else counts[:count].tolist(),
        "oov": np.flatnonzero(run.losses.oov[:count]).tolist(),
        "logged": bool(run.neighbors),
        "neighbors": {at: _neighbors(run.neighbors.get(at, ()), texts) for at in range(logged)},
        "texts": list(texts),
        "components": components,
    }


def _thousandths(numbers: Iterable[float]) -> list[int | None]:
    """Losses or shares (T,) as whole thousandths; None for an infinite one."""
    return [None if np.isinf(number) else round(number * 1000) for number in numbers]


def _neighbors(near: Sequence[Neighbor], texts: dict[str, int]) -> list[list[Any]]:
    """Neighbours as lists; contexts are collected once in ``texts``."""
    rows: list[list[Any]] = []
    for item in near:
        rows.append(
            [
                int(item.from_stream),
                item.place,
                item.label,
                f"{item.distance:.4g}",
                f"{item.kernel_weight:.3g}",
                texts.setdefault(item.context, len(texts)),
            ]
        )
    return rows
