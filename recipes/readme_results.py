"""Write the tables between the marks of README.md and docs from the results and measurements under recipes.

Usage: python -m recipes.readme_results [--check]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hebblm.bench.tables import training_table
from hebblm.files import read_json
from hebblm.report import Result
from hebblm.report.methods import name_of, ordered
from hebblm.report.render import to_markdown
from hebblm.report.sections import scenario_line
from hebblm.report.tables import frequency_table, paper_tables, side_by_side
from recipes.study.cost.record import load
from recipes.study.cost.tables import goal_table

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DEFAULTS = ROOT / "recipes" / "defaults"
RESULTS = ROOT / "recipes" / "results"
BEGIN, END = "<!-- results: written by recipes/readme_results.py -->", "<!-- end of results -->"
BENCH = RESULTS / "bench"
DEFAULTS_BEGIN, DEFAULTS_END = (
    "<!-- defaults: written by recipes/readme_results.py -->",
    "<!-- end of defaults -->",
)
CARRIED_BEGIN, CARRIED_END = (
    "<!-- carried: written by recipes/readme_results.py -->",
    "<!-- end of carried -->",
)
READ = {
    "intra-ptb": "Penn Treebank",
    "intra-wt2": "WikiText-2",
    "wt2-to-ptb": "WikiText-2's model reads Penn Treebank",
}
BENCH_BEGIN, BENCH_END = "<!-- cost: written by recipes/readme_results.py -->", "<!-- end of cost -->"
ORDER = ("wt2-to-ptb", "wt2-to-ptb-raw", "intra-ptb", "intra-wt2")
FIRST = "wt2-to-ptb"  # shown with its picture and its ranges; those of the others are in the book
BESIDE_THE_PAPER = (FIRST, "intra-ptb", "intra-wt2")


def block() -> str:
    """Return the Markdown of all committed results, in a fixed order."""
    found = {
        name: Result.load(RESULTS / name) for name in ORDER if (RESULTS / name / "result.json").is_file()
    }
    parts = [to_markdown(side_by_side(_headings(found.values())))]
    parts += [f"- {scenario_line(result.scenario)}" for result in found.values()]
    parts.append("")
    parts += [_origin(name, result) for name, result in found.items()]
    for name, result in found.items():
        if name in BESIDE_THE_PAPER:
            parts += ["", to_markdown(paper_tables(result)[0])]
        if name == FIRST:
            parts += [
                to_markdown(frequency_table(result)),
                f"![Perplexity by training count, {result.scenario.label}](../recipes/results/{name}/frequency.png)",
            ]
    parts.append("\nTables and pictures of every run, with intervals: [the book](../recipes/book/book.md).")
    return "\n".join(parts).rstrip().replace("## ", "### ") + "\n"


def _origin(name: str, result: Result) -> str:
    """Return what made a result."""
    commit, seed = str(result.provenance["commit"])[:12], result.provenance["seed"]
    made = f"`{result.provenance['command']}`, commit `{commit}`, seed {seed}"
    return f"- [{name}](../recipes/results/{name}/result.json): {made}"


def _headings(results: Iterable[Result]) -> dict[str, Result]:
    """Return the results by what tells them apart: the scenario, and its normalisation where it comes twice."""
    results = list(results)
    labels = Counter(result.scenario.label for result in results)
    return {
        result.scenario.label
        if labels[result.scenario.label] == 1
        else f"{result.scenario.label}, {result.scenario.normalization}": result
        for result in results
    }


def cost() -> str:
    """Return the Markdown of all committed measurements of speed."""
    measured = [load(path) for path in sorted(BENCH.glob("*.json"))]
    if not measured:
        return "Not measured yet.\n"
    tables = [goal_table(measured), training_table(measured)]
    text = "\n".join(to_markdown(table) for table in tables if table is not None)
    return text.rstrip().replace("## ", "### ") + "\n"


def defaults() -> str:
    """Return the Markdown table of every method at the default values on three test texts."""
    found = {label: Result.load(DEFAULTS / f"result-{name}.json") for name, label in READ.items()}
    head = ["Method", *found]
    rows = [head, ["---", *["---:"] * len(found)]]
    for method in next(iter(found.values())).methods:
        cells = []
        for result in found.values():
            mine, base = result.methods[method], result.methods["lstm"]
            gain = "" if method == "lstm" else f" ({base.nll - mine.nll:+.3f})"
            cells.append(f"{mine.perplexity:.2f}{gain}")
        rows.append([name_of(method), *cells])
    made = ", ".join(f"[{label}](recipes/defaults/result-{name}.json)" for name, label in READ.items())
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\nMade by `hebblm-eval`: {made}.\n"


def carried() -> str:
    """Return the Markdown table of what the default values lose to a text's own best point, by method and text."""
    document = read_json(DEFAULTS / "defaults.json")
    texts = {**document["chosen_on"], **document["transfer"]}
    methods = ordered(next(iter(texts.values())))
    rows = [["Method", *texts], ["---", *["---:"] * len(texts)]]
    rows += [
        [name_of(method), *[f"{losses[method]['lost']:.3f}" for losses in texts.values()]]
        for method in methods
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def pages() -> dict[Path, str]:
    """Return README and the pages of docs that hold tables, with what stands between the marks replaced."""
    marked = {
        README: (DEFAULTS_BEGIN, DEFAULTS_END, defaults()),
        DOCS / "results.md": (BEGIN, END, block()),
        DOCS / "cost.md": (BENCH_BEGIN, BENCH_END, cost()),
    }
    found = {path: _between(path.read_text(encoding="utf-8"), *marks) for path, marks in marked.items()}
    results = DOCS / "results.md"
    return {**found, results: _between(found[results], CARRIED_BEGIN, CARRIED_END, carried())}


def _between(text: str, begin: str, end: str, body: str) -> str:
    """Return a text with what stands between two marks replaced."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{body}\n{end}{after}"


def main() -> int:
    """Write the pages, or say by the exit status whether they are up to date."""
    changed = [(path, text) for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        return int(bool(changed))
    for path, text in changed:
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
