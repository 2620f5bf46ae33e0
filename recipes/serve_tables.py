"""The table of what the server costs."""

from __future__ import annotations

from recipes.bench.record import BenchResult
from recipes.markdown import ROOT

COST = ROOT / "recipes" / "speed" / "serve.json"


def cost() -> str:
    """Return the costs of a server of each model, in processor time."""
    result = BenchResult.load(COST)
    lines = [
        "| Model | ready after, s | a letter more, median, ms | 95 of 100 within, ms "
        "| completions a second, `best` | unadapted | llama.cpp |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in result.rows:
        values = row.values
        theirs = values.get("llama.cpp completions a second")
        lines.append(
            f"| `{row.case['model']}` | {values['ready processor s']:.1f} "
            f"| {values['processor p50 ms']:.0f} | {values['processor p95 ms']:.0f} "
            f"| {values['best completions a second']:.2f} "
            f"| {values['base completions a second']:.2f} "
            f"| {'' if theirs is None else f'{theirs:.2f}'} |"
        )
    made, case = result.provenance, result.rows[0].case
    lines += [
        "",
        f"- processor time of the server with {made['threads']} thread; "
        f"a text of {case['context']} tokens, then {case['letters']} letters; completions of "
        f"{case['tokens']} tokens, one after the other: [serve](../recipes/speed/serve.json), "
        f"commit `{made['commit'][:12]}`, {made['cpu']}",
    ]
    return "\n".join(lines)
