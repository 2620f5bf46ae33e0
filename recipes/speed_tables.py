"""The tables of what `best` costs, and of how far its forms differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hebblm.io.files import read_json
from hebblm.report.result.methods import name_of
from recipes.bench.record import BenchResult
from recipes.bench.timing import Spread
from recipes.markdown import ROOT

SPEED = ROOT / "recipes" / "speed"
REAL = tuple(SPEED / name for name in ("smollm2.json", "smollm2-avx2.json"))
PROTOTYPES = tuple(SPEED / name for name in ("prototype.json", "prototype-words.json"))
FORMS = SPEED / "forms.json"


def real() -> str:
    """Return the cost of the base and of ``best``, and of plain transformers."""
    lines = [
        "| Measured | Form | Window | plain, ms | base, ms | `base,best`, ms "
        "| base, plain = 1 | `base,best`, base = 1 |",
        "| :-- | :-- | --: | --: | --: | --: | --: | --: |",
    ]
    for path in REAL:
        result = BenchResult.load(path)
        for row in result.rows:
            plain, base, best = (row.timings[name] for name in ("plain", "base", "base,best"))
            times = (f"{timing.milliseconds().median:.1f}" for timing in (plain, base, best))
            lines.append(
                f"| [{path.stem}]({path.name}) | {_form(result.provenance)} "
                f"| {row.case['window']:,} | {' | '.join(times)} "
                f"| {_ratio(base.times(plain))} | {_ratio(best.times(base))} |"
            )
    lines += ["", *(_made(path, BenchResult.load(path).provenance) for path in REAL)]
    return "\n".join(lines)


def prototypes() -> str:
    """Return the cost of ``base,best`` now, before, and by the prototype, in turn."""
    lines = [
        "| Measured | Model | now, base = 1 | before | prototype "
        "| `base,best` now, before = 1 | base now, before = 1 | loss against before, nats |",
        "| :-- | :-- | --: | --: | --: | --: | --: | --: |",
    ]
    for path in PROTOTYPES:
        found = read_json(path)
        runs = found["runs"]
        ratios = (
            _ratio(Spread.of([one["base,best"] / one["base"] for one in runs[name]]))
            for name in ("now", "before", "prototype")
        )
        now, before = runs["now"], runs["before"]
        change = now[0]["nats"]["best"] - before[0]["nats"]["best"]
        against = (
            _ratio(
                Spread.of([one[what] / other[what] for one, other in zip(now, before, strict=True)])
            )
            for what in ("base,best", "base")
        )
        lines.append(
            f"| [{path.stem}]({path.name}) | `{found['settings']['model']}` "
            f"| {' | '.join(ratios)} | {' | '.join(against)} | {change:+.1e} |"
        )
    lines += ["", *(_made(path, read_json(path)["provenance"]) for path in PROTOTYPES)]
    return "\n".join(lines)


def forms() -> str:
    """Return how far compiled forms are from plain torch: the largest change over all texts."""
    found = read_json(FORMS)
    texts = found["texts"]
    lines = [
        "| Method | Form | a text's mean loss, nats | a token's loss, nats |",
        "| :-- | :-- | --: | --: |",
    ]
    for name in next(iter(texts.values())):
        for form in ("float32", "bfloat16"):
            each = [by_method[name][form] for by_method in texts.values()]
            mean, token = (max(abs(one[what]) for one in each) for what in ("mean", "token"))
            lines.append(f"| {name_of(name)} | {form} | {mean:.1e} | {token:.1e} |")
    lines += ["", f"- over {len(texts)} texts", _made(FORMS, found["provenance"])]
    return "\n".join(lines)


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"


def _form(made: dict[str, Any]) -> str:
    return str(made["kernels"]).partition(" ")[0]


def _made(path: Path, made: dict[str, Any]) -> str:
    return (
        f"- [{path.stem}]({path.name}), `{made['command']}`, commit `{str(made['commit'])[:12]}`, "
        f"{made['threads']} thread, {made['cpu']}"
    )
