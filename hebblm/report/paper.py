"""The numbers printed in the paper, as data.

Source: Mi, Lin and Faltings, "Representation Memorization for Fast Learning New Knowledge without Forgetting"
(IJCAI 2021), Table "lm" (online adaptation) and Table "frequency" (test perplexity by training count).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hebblm.report.result import Scenario

SOURCE = "Mi, Lin and Faltings, IJCAI 2021"

_METHODS = ("lstm", "mixture", "mbpa", "hebb", "mixture+mbpa", "mixture+hebb")
_BUCKETS = ("<50", "50-100", "100-500", ">500", "All")

# Table "lm", left: perplexity within one domain.
_PERPLEXITY: dict[tuple[str, str], tuple[float, ...]] = {
    ("ptb", "valid"): (60.88, 58.37, 59.00, 58.45, 56.95, 56.30),
    ("ptb", "test"): (58.53, 57.44, 56.68, 56.39, 55.58, 55.13),
    ("wt2", "valid"): (68.50, 54.80, 61.98, 60.95, 53.00, 52.65),
    ("wt2", "test"): (65.44, 52.50, 59.00, 57.29, 50.21, 49.66),
}
# Table "lm", right: WikiText-2 to PTB test, cross-entropy in nats per token.
_CROSS_NLL = (6.41, 5.72, 6.12, 5.99, 5.68, 5.61)
_CROSS_OOV_NLL = (12.66, 9.74, 12.04, 10.36, 9.70, 9.65)
# Table "frequency": perplexity on the test split within one domain, buckets as in _BUCKETS.
_FREQUENCY: dict[str, dict[str, tuple[float, ...]]] = {
    "ptb": {"mbpa": (3061.75, 719.73, 189.96, 13.64, 56.68), "hebb": (2840.84, 655.86, 177.61, 13.13, 56.39)},
    "wt2": {"mbpa": (5027.67, 970.07, 277.40, 12.53, 59.00), "hebb": (4676.85, 914.83, 264.13, 12.36, 58.29)},
}
# Section "Online Adaptation for Language Model": share of the tokens of PTB's test text that WikiText-2 lacks.
OOV_RATE = 0.0377
# Tokens of the whole stream, one end-of-sentence mark a line.
_STREAM_TOKENS = {
    ("ptb", "valid"): 73_760,
    ("ptb", "test"): 82_430,
    ("wt2", "valid"): 217_646,
    ("wt2", "test"): 245_569,
}


@dataclass(frozen=True, slots=True)
class Published:
    """What the paper prints for one scenario.

    Args:
        perplexity: by method, within one domain.
        nll: by method, across domains, nats per token.
        oov_nll: by method, across domains, nats per token on words outside the vocabulary.
        frequency: by method and bucket (``All`` included), perplexity.
        notes: what a reader must know before comparing.
    """

    perplexity: dict[str, float] = field(default_factory=dict)
    nll: dict[str, float] = field(default_factory=dict)
    oov_nll: dict[str, float] = field(default_factory=dict)
    frequency: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def published(scenario: Scenario) -> Published | None:
    """Return the paper's numbers for a scenario, or None where it has none."""
    key = (scenario.target, scenario.split)
    notes = _partial(scenario)
    if scenario.source == scenario.target and key in _PERPLEXITY:
        table = _FREQUENCY[scenario.target] if scenario.split == "test" else {}
        if key == ("wt2", "test"):
            notes += ("The paper prints 57.29 for Hebb in one table and 58.29 in the other.",)
        if table:
            notes += ("The buckets of the paper's Hebb rows do not recombine to its printed All.",)
        return Published(
            perplexity=dict(zip(_METHODS, _PERPLEXITY[key], strict=True)),
            frequency={name: dict(zip(_BUCKETS, row, strict=True)) for name, row in table.items()},
            notes=notes,
        )
    if (scenario.source, *key) == ("wt2", "ptb", "test"):
        rate = f"The paper states {OOV_RATE:.2%} of tokens out of vocabulary; this run has {scenario.oov_rate:.2%}."
        return Published(
            nll=dict(zip(_METHODS, _CROSS_NLL, strict=True)),
            oov_nll=dict(zip(_METHODS, _CROSS_OOV_NLL, strict=True)),
            notes=(*notes, rate.replace("%", " %")),
        )
    return None


def stream_tokens(scenario: Scenario) -> int | None:
    """Return how many tokens the paper scored of a scenario's split, None for a split that it does not score."""
    return _STREAM_TOKENS.get((scenario.target, scenario.split))


def base_perplexity(source: str) -> float | None:
    """Return the perplexity of the paper's base model on its own validation text, None for another corpus."""
    printed = _PERPLEXITY.get((source, "valid"))
    return None if printed is None else printed[_METHODS.index("lstm")]


def _partial(scenario: Scenario) -> tuple[str, ...]:
    """Return a warning where the run scored only a part of the stream that the paper scored."""
    whole = _STREAM_TOKENS.get((scenario.target, scenario.split), scenario.tokens)
    if scenario.tokens == whole:
        return ()
    return (f"This run scored {scenario.tokens:,} of {whole:,} tokens; the paper scored all of them.",)
