"""The numbers printed in the paper, read from ``paper.json`` beside this file.

Its keys: ``language`` holds Table "lm" (perplexity, or nats per token) and Table "frequency" (test perplexity by
training count), with the tokens of the whole stream; ``images`` Tables "cifar-incre" (by epoch; its caption says 5, its
header 10), "cifar-online", "pretrain" and "ablation" in per cent, and "time" in seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from hebblm.report.result import ScenarioRecord

_PRINTED: dict[str, Any] = json.loads(files("hebblm.report").joinpath("paper.json").read_text("utf-8"))
SOURCE: str = _PRINTED["source"]


@dataclass(frozen=True, slots=True)
class Published:
    """Numbers that the paper prints for one scenario.

    Args:
        source: corpus of the base model.
        target: corpus that is scored.
        split: of the target.
        tokens: of the whole stream, one end-of-sentence mark a line.
        perplexity: by method, within one domain.
        nll: by method, across domains, nats per token.
        oov_nll: by method, across domains, nats per token on words outside the vocabulary.
        oov_rate: share of the tokens outside the vocabulary, as its section "Online Adaptation" states it.
        frequency: by method and bucket (``All`` included), perplexity.
        notes: what a reader must know before comparing.
    """

    source: str
    target: str
    split: str
    tokens: int
    perplexity: dict[str, float] = field(default_factory=dict)
    nll: dict[str, float] = field(default_factory=dict)
    oov_nll: dict[str, float] = field(default_factory=dict)
    oov_rate: float = 0.0
    frequency: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


_LANGUAGE = [Published(**{**entry, "notes": tuple(entry.get("notes", ()))}) for entry in _PRINTED["language"]]


def published(scenario: ScenarioRecord) -> Published | None:
    """Return the paper's numbers for a scenario with notes on how it differs, or None where it has none."""
    wanted = (scenario.source, scenario.target, scenario.split)
    found = next((p for p in _LANGUAGE if (p.source, p.target, p.split) == wanted), None)
    if found is None:
        return None
    notes = found.notes
    if scenario.tokens != found.tokens:
        part = f"This run scored {scenario.tokens:,} of {found.tokens:,} tokens; the paper scored all of them."
        notes = (part, *notes)
    if found.oov_rate:
        theirs, ours = 100 * found.oov_rate, 100 * scenario.oov_rate
        rate = f"The paper states {theirs:.2f} % of tokens out of vocabulary; this run has {ours:.2f} %."
        notes = (*notes, rate)
    return replace(found, notes=notes)


def split_tokens(target: str, split: str) -> int | None:
    """Return the tokens of a whole split that the paper scores, None for another one."""
    return next((p.tokens for p in _LANGUAGE if (p.target, p.split) == (target, split)), None)


def base_perplexity(source: str) -> float | None:
    """Return the perplexity of the paper's base model on its own validation text, None for another corpus."""
    found = (p for p in _LANGUAGE if p.source == p.target == source and p.split == "valid")
    return next((p.perplexity["lstm"] for p in found), None)


def image(*keys: str | None) -> Any:
    """Return what the paper prints under nested keys, such as ``online``, ``ResnetV1``, ``new``, ``hebb``.

    Returns:
        A number or a table of them; None where it prints none.
    """
    found: Any = _PRINTED["images"]
    for key in keys:
        if key not in found:
            return None
        found = found[key]
    return found
