"""Tables of the server: what it costs, and how far the harness's numbers are from those in
process.
"""

from __future__ import annotations

from hebblm.io.files import read_json
from recipes.bench.record import BenchResult
from recipes.harness import TASKS
from recipes.markdown import ROOT

COST, HARNESS = ROOT / "recipes" / "speed" / "serve.json", ROOT / "recipes" / "harness.json"


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


def harness() -> str:
    """Return the largest difference of log-likelihoods in each task."""
    document = read_json(HARNESS)
    found = document["differences"]
    ways = list(dict.fromkeys(name.rpartition(", ")[0] for name in found))
    names = [name.replace("_", " ") for name in TASKS]
    lines = [f"| Nats apart at most | {' | '.join(names)} |", "| :-- |" + " --: |" * len(TASKS)]
    for way in ways:
        values = [f"{found[f'{way}, {task}']['nats']:.0e}" for task in TASKS]
        lines.append(f"| {way} | {' | '.join(values)} |")
    made, settings = document["provenance"], document["settings"]
    lines += [
        "",
        f"- `{settings['model']}`, {settings['items']} questions of each task: "
        f"[harness](../recipes/harness.json), commit `{made['commit'][:12]}`",
    ]
    return "\n".join(lines)
