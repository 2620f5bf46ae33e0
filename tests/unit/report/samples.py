"""Small results for the tests, with losses of the size that real ones have."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from hebblm.report.render.result import Result
from hebblm.report.result.numbers import perplexity
from hebblm.report.result.parts import (
    DEFAULT_EDGES,
    Bootstrap,
    bootstrap_gains,
    frequency_report,
    occurrence_report,
    occurrences_so_far,
    stream_parts,
)
from hebblm.report.result.schema import MethodResult, ScenarioRecord
from hebblm.report.result.tokens import TokenLosses, running_curve

# committed, with suggestions and pairs
ACCURACY = Path(__file__).parents[3] / "recipes" / "accuracy" / "numpy.json"
SHIFTS = {
    "mixture+hebb": 0.62,
    "hebb": 0.18,
    "lstm": 0.0,
    "dynamic": 0.22,
    "cache": 0.31,
    "knn": 0.35,
    "mixture": 0.52,
    "mbpa": 0.27,
    "mixture+mbpa": 0.55,
    "hebb-v1": -0.12,
}


def sample_tokens(
    count: int = 3000, *, oov: bool = True, methods: tuple[str, ...] = tuple(SHIFTS)
) -> TokenLosses:
    """Return losses of Zipf-distributed words: rare words cost more, adaptation helps them most."""
    rng = np.random.default_rng(7)
    rank = np.minimum(rng.zipf(1.25, count), 5000)
    counts = np.maximum(40_000 // rank - 12, 0 if oov else 1).astype(np.int64)
    base = 9.5 - 0.75 * np.log1p(counts) + rng.gamma(2.0, 0.4, count)
    rare = 1.0 / (1.0 + counts / 400)
    drift = np.linspace(0.2, 1.8, count)
    # The noise of a method is the same whichever other methods are asked for.
    noise = {name: rng.normal(0, 0.05, count) for name in SHIFTS}
    nll = {
        method: np.maximum(base - SHIFTS[method] * (0.3 + 2.5 * rare) * drift + noise[method], 0.01)
        for method in methods
    }
    words = np.asarray([f"word{value}" for value in rank], dtype=np.object_)
    return TokenLosses(words=words, train_counts=counts, oov=counts == 0, nll=nll)


def sample_result(
    count: int = 3000,
    *,
    source: str = "wt2",
    target: str = "ptb",
    split: str = "test",
    methods: tuple[str, ...] = tuple(SHIFTS),
) -> Result:
    """Return the result of :func:`sample_tokens`; within one domain nothing is out of
    vocabulary.
    """
    across = source != target
    tokens = sample_tokens(count, oov=across, methods=methods)
    seen = occurrences_so_far(tokens.words)
    gains = bootstrap_gains(
        tokens.nll, stream_parts(tokens.train_counts, seen, tokens.oov, DEFAULT_EDGES), Bootstrap()
    )
    entries = {}
    for method in methods:
        nll = tokens.nll[method]
        entries[method] = MethodResult(
            nll=float(nll.mean()),
            perplexity=perplexity(float(nll.mean())),
            oov_nll=float(nll[tokens.oov].mean()) if across else None,
            in_vocabulary_nll=float(nll[~tokens.oov].mean()),
            frequency=tuple(frequency_report(nll, tokens.train_counts)),
            hyperparameters={} if method == "lstm" else {"lr": 0.1, "steps": 5, "gate": "gated"},
            seconds=count / 800,
            tokens_per_second=800.0,
            stabilized_queries=3 if method in ("mbpa", "hebb") else None,
            running=running_curve(nll),
            oov_occurrences=tuple(occurrence_report(nll, seen, tokens.oov)),
            gains=gains.get(method, ()),
        )
    scenario = ScenarioRecord(
        kind="cross-domain" if across else "intra-domain",
        source=source,
        target=target,
        split=split,
        normalization="lower",
        vocabulary="union",
        tokens=count,
        oov_tokens=int(tokens.oov.sum()),
        oov_types=len(set(tokens.words[tokens.oov])),
    )
    return Result(
        scenario=scenario,
        model={"architecture": "awd_lstm_small", "parameters": 6_800_000},
        memory={"content": "both", "index": "auto", "k": 200, "update_every": 100},
        provenance={
            "command": "hebblm-eval --cross-domain wt2-to-ptb",
            "commit": "0123abc",
            "versions": {"torch": "2.13.0", "python": "3.11.2"},
            "device": "cpu",
            "seed": 1,
            "data_sha256": {"ptb": "ab" * 32},
        },
        methods=entries,
    )


class Page(HTMLParser):
    """Elements and text of a page, and the tokens of an inspected run with their classes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.tokens: list[str] = []
        self.classes: list[str] = []
        self.scripts: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "input", "img"):
            self._open.append((tag, dict(attrs)))
        if tag == "span" and self._within_text():
            self.tokens.append("")
            self.classes.append(dict(attrs).get("class") or "")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag, f"{tag} closes what it did not open"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1][0] == "span" and self._within_text():
            self.tokens[-1] += data
        if self._open and self._open[-1][0] == "script":
            self.scripts[-1] += data

    def _within_text(self) -> bool:
        return any(attributes.get("id") == "text" for _, attributes in self._open)

    @property
    def data(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.scripts[0])
        return made
