"""Write every number of README.md, docs and the tables under recipes/ from the committed results
and measurements.

What stands between two marks of a page is replaced, and the pictures of README and docs are drawn.

Usage: python -m recipes.readme_results [--check]
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from hebblm.adapt.methods import EVALUATED, PUBLISHED
from hebblm.io.files import read_json
from hebblm.report import Result
from hebblm.report.plots.drawing import save
from hebblm.report.plots.figures import occurrence_figure
from hebblm.report.render.table import to_markdown
from hebblm.report.result.methods import BASE, name_of, ordered
from hebblm.report.result.numbers import Cell
from hebblm.report.tables.by_part import frequency_table, gain_table, occurrence_table
from hebblm.report.tables.facts import scenario_line
from hebblm.report.tables.overall import runs_table
from hebblm.report.tables.table import Column, Table, present
from hebblm.vision.tables import tables
from recipes import (
    best_tables,
    conclusions,
    real_tables,
    referee_tables,
    reliability_tables,
    scale_tables,
    second_sighting,
    serve_tables,
    speed_tables,
)
from recipes import causal_tables as causal
from recipes.bench.record import BenchResult
from recipes.bench.tables import training_table
from recipes.hebb import tables as hebb
from recipes.markdown import ROOT, body, gain_text, origin_of
from recipes.scale import processes
from recipes.study.cost.tables import goal_table
from recipes.study.paper import paper_tables

README, DOCS, RECIPES = ROOT / "README.md", ROOT / "docs", ROOT / "recipes"
PICTURE = DOCS / "new-words.png"
PICTURED = ("lstm", "dynamic", "cache", "mixture+mbpa", "best")
RESULTS = ROOT / "recipes" / "results"
DEFAULTS = ROOT / "recipes" / "defaults"
DEMO = ROOT / "recipes" / "demo"
WITHIN, LARGER, ACROSS = (
    RESULTS / name / "result.json" for name in ("intra-ptb", "intra-wt2", "wt2-to-ptb")
)
ORDER = ("wt2-to-ptb", "wt2-to-ptb-raw", "intra-ptb", "intra-wt2")
FIRST = "wt2-to-ptb"  # shown with its picture and its ranges; those of the others are in the book
STRENGTHS = {
    "small base": RESULTS / "intra-ptb" / "result.json",
    "published shape": RESULTS.parent / "strength" / "intra-ptb-medium.json",
}
BESIDE_THE_PAPER = (FIRST, "intra-ptb", "intra-wt2")
NEEDS = (
    ("the lowest loss on any text", ("best",)),
    ("names and phrases that repeat, almost for free", ("ngram",)),
    ("everything that you ever read, not only the recent past", ("knn",)),
    ("a new domain, and a model that may change its own weights", ("dynamic",)),
    ("the cheapest method as published", ("cache",)),
)


def demo() -> str:
    """Return the first words of ``make demo``."""
    return _said(DEMO)


def demo_real() -> str:
    """Return the first words of ``make demo-real``."""
    return _said(DEMO.with_name("demo-real"))


def _said(folder: Path) -> str:
    """Return the verdict of a result, as it stands in 80 columns, and what made it."""
    verdict = textwrap.wrap(Result.load(folder).verdict(), 80)
    return "\n".join(["```text", *verdict, "```", "", f"- {_made(folder / 'result.json')}"])


def defaults() -> str:
    """Return the table of word models: the default methods at the default values and ``best``, and
    what each costs.

    ``mixture+hebb`` is left out, because it compares with ``mixture+mbpa`` as ``hebb`` does with
    ``mbpa``.
    """
    results = within, larger, across = [Result.load(path) for path in (WITHIN, LARGER, ACROSS)]
    columns = (
        Column("Method"),
        Column("Penn Treebank, perplexity", "perplexity", "min"),
        Column("WikiText-2, perplexity", "perplexity", "min"),
        Column("WikiText-2 to Penn Treebank, perplexity", "perplexity", "min"),
        Column("nats on new words there", "nll", "min", decimals=2),
        Column("time a token there, base = 1", "amount"),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            name_of(name),
            within.methods[name].perplexity,
            larger.methods[name].perplexity,
            across.methods[name].perplexity,
            across.methods[name].oov_nll,
            _cost(across, name),
        )
        for name in (*PUBLISHED, "ngram", "best", "dynamic+best", "best-of-both")
        if name != "mixture+hebb"
    )
    lines = [
        f"- {scenario.label}, {scenario.normalization} case, {scenario.tokens:,} tokens: "
        f"{_made(path)}"
        for path, scenario in zip(
            (WITHIN, LARGER, ACROSS), (result.scenario for result in results), strict=True
        )
    ]
    return f"{body(Table.of_cells('defaults', '', columns, rows))}\n" + "\n".join(lines) + "\n"


def _made(path: Path) -> str:
    """Return a link to the measurement, with commit and seed."""
    by, name = read_json(path)["provenance"], path.parent.name
    return (
        f"[{name}](../{path.relative_to(ROOT).as_posix()}), commit `{by['commit'][:12]}`, seed "
        f"{by['seed']}"
    )


def needs() -> str:
    """Return the table of what to use, with the cost of each method in times of the base's."""
    across = Result.load(ACROSS)
    columns = (Column("You want"), Column("Use"), Column("Time a token, base = 1"))
    rows = tuple(
        (
            need,
            " or ".join(f"`{name}`" for name in names),
            " and ".join(f"{_cost(across, name):.1f}" for name in names),
        )
        for need, names in NEEDS
    )
    return body(Table.of_cells("needs", "", columns, rows)).replace("\\`", "`")


def at_defaults() -> str:
    """Return the results of the default methods at the default values: gains with intervals, new
    words.
    """
    parts = []
    for path in (WITHIN, LARGER, ACROSS):
        whole = Result.load(path)
        result = replace(
            whole, methods={name: whole.methods[name] for name in (*PUBLISHED, "ngram", "best")}
        )
        made = present(gain_table(result), occurrence_table(result), frequency_table(result))
        parts += map(to_markdown, made)
    return _headed(parts)


def carried() -> str:
    """Return the losses of the default values to a text's own best point, by method and text."""
    document = read_json(DEFAULTS / "defaults.json")
    texts = {**document["chosen_on"], **document["transfer"]}
    methods = [name for name in ordered(texts["ptb"]) if name in EVALUATED]
    columns = (Column("Text"), *(Column(name_of(name), "nll", decimals=3) for name in methods))
    rows = tuple(
        (text, *(losses.get(name, {}).get("lost") for name in methods))
        for text, losses in texts.items()
    )
    return body(Table.of_cells("carried", "", columns, rows))


def every_method() -> str:
    """Return the Markdown of all methods at the default values, next to the paper's, in a fixed
    order.
    """
    found = {}
    for name in ORDER:
        whole = Result.load(RESULTS / name)
        kept = {method: item for method, item in whole.methods.items() if method in EVALUATED}
        found[name] = replace(whole, methods=kept)
    parts = [to_markdown(runs_table(_headings(found.values())))]
    parts += [f"- {scenario_line(result)}" for result in found.values()]
    parts.append("")
    parts += [
        f"- {origin_of(name, RESULTS / name / 'result.json', result, '../')}"
        for name, result in found.items()
    ]
    parts += ["", *(to_markdown(paper_tables(found[name])[0]) for name in BESIDE_THE_PAPER)]
    by_count = frequency_table(found[FIRST])
    assert by_count is not None, "its training text is known"
    parts.append(to_markdown(by_count))
    picture = f"../recipes/results/{FIRST}/frequency.png"
    parts.append(f"![Perplexity by training count, {found[FIRST].scenario.label}]({picture})")
    return _headed(parts)


def cost() -> str:
    """Return the Markdown of all committed measurements of speed."""
    measured = [BenchResult.load(path) for path in sorted((RESULTS / "bench").glob("*.json"))]
    return _headed(map(to_markdown, present(goal_table(measured), training_table(measured))))


def strength() -> str:
    """Return the gains of every method over a small base and over one of the published shape, on
    the same text.
    """
    found = {title: Result.load(path) for title, path in STRENGTHS.items()}
    columns = [Column("Method")]
    for title in found:
        columns += [
            Column(f"{title}: perplexity", "perplexity", "min"),
            Column("gain, nats", "signed"),
        ]
    rows = []
    both = set.intersection(*(set(result.methods) for result in found.values()))
    for name in ordered(both):
        row: list[Cell] = [name_of(name)]
        for result in found.values():
            gain = None if name == BASE else result.gain(name)
            row += [
                result.methods[name].perplexity,
                None if gain is None else gain_text(gain),
            ]
        rows.append(tuple(row))
    made = [f"- {origin_of(title, path, found[title], '../')}" for title, path in STRENGTHS.items()]
    return "\n".join([body(Table.of_cells("strength", "", tuple(columns), tuple(rows))), *made])


def pictures() -> str:
    """Return the image experiments that say most: new classes at once and picture by picture, and
    permuted MNIST.
    """
    paths = [RESULTS / name / "result.json" for name in ("incremental", "online", "permuted-mnist")]
    paths.insert(2, ROOT / "recipes" / "vision" / "online-fast.json")
    shown = [table for path in paths for table in tables(read_json(path))]
    return _headed([to_markdown(replace(table, notes=())) for table in shown])


def vision() -> str:
    """Return every table of the image experiments; those of one experiment stand together."""
    order = ("incremental", "online", "pretrain-classes", "ablation", "permuted-mnist")
    documents = [read_json(path) for path in sorted((RECIPES / "vision").glob("*.json"))]
    shown = []
    for experiment in order:
        first = read_json(RESULTS / experiment / "result.json")
        further = [found for found in documents if found["experiment"] == experiment]
        shown += [table for document in (first, *further) for table in tables(document)]
    return _headed([to_markdown(table) for table in shown])


PAGES: dict[Path, dict[str, Callable[[], str]]] = {
    README: {"real": lambda: causal.real(short=True), "needs": needs},
    DOCS / "index.md": {"demo": demo},
    DOCS / "huggingface.md": {"demo-real": demo_real},
    DOCS / "results.md": {"defaults": defaults},
    DOCS / "results-transformers.md": {
        "windows": real_tables.windows_in_short,
        "harm": real_tables.harm,
        "transformer": lambda: causal.transformer(short=True),
    },
    DOCS / "results-images.md": {"images": pictures},
    DOCS / "memory.md": {"watch": real_tables.watch},
    DOCS / "scale.md": {"disk": scale_tables.measured},
    DOCS / "serve.md": {"cost": serve_tables.cost},
    DOCS / "reliability.md": {"figures": reliability_tables.summary},
    RESULTS / "README.md": {"by-count": at_defaults, "every-method": every_method},
    RESULTS / "bench" / "README.md": {"whole": scale_tables.whole, "cost": cost},
    DEFAULTS / "README.md": {"carried": carried, "windows": scale_tables.windows},
    RECIPES / "best" / "README.md": {
        "both": best_tables.both,
        "parts": best_tables.parts,
        "forms": best_tables.forms,
    },
    RECIPES / "hebb" / "README.md": {
        "learns": hebb.learns,
        "added": hebb.added,
        "inside": hebb.inside,
        "solvers": hebb.solvers,
        "values": hebb.values,
    },
    RECIPES / "scale" / "README.md": {
        "built": scale_tables.built,
        "disk": scale_tables.measured,
        "paper": scale_tables.paper,
        "streams": scale_tables.streams,
        "processes": processes.throughput,
    },
    RECIPES / "huggingface" / "README.md": {
        "real": causal.real,
        "transformer": causal.transformer,
        "transformer-tuned": causal.transformer_tuned,
        "rates": causal.rates,
        "beside-words": causal.beside_words,
        "keys": causal.keys,
        "heads": causal.heads,
    },
    RECIPES / "speed" / "README.md": {
        "real": speed_tables.real,
        "prototypes": speed_tables.prototypes,
        "forms": speed_tables.forms,
    },
    RECIPES / "dynamic" / "README.md": {"without-training-text": causal.without_training_text},
    RECIPES / "conclusions.md": {
        "constant": conclusions.constant,
        "freshness": conclusions.freshness,
        "interval": conclusions.interval,
        "published": conclusions.published,
        "regimes": conclusions.regimes,
        "rows": conclusions.rows,
        "seeds": conclusions.seeds,
        "strength": strength,
        "classes": conclusions.classes,
        "new-words": conclusions.new_words,
    },
    RECIPES / "vision" / "README.md": {"images": vision},
    RECIPES / "accuracy" / "README.md": {
        "docs": lambda: real_tables.suggestions("docs"),
        "code": lambda: real_tables.suggestions("code"),
    },
    RECIPES / "second" / "README.md": {
        "words": lambda: second_sighting.table("words"),
        "learned": lambda: second_sighting.table("learned"),
        "pieces": lambda: second_sighting.table("pieces"),
    },
    RECIPES / "real" / "README.md": {
        "texts": real_tables.texts,
        "windows": real_tables.windows,
        "wide": real_tables.wide,
        "generation": real_tables.generation,
    },
    RECIPES / "refereed" / "README.md": {"referee": referee_tables.referee},
}


def marks(name: str) -> tuple[str, str]:
    """Return the text before and after a written block."""
    return f"<!-- {name}: written by recipes/readme_results.py -->", f"<!-- end of {name} -->"


def render(page: Path, text: str) -> str:
    """Return a page's text with the blocks between its marks replaced; tables link from docs, so
    links are moved.
    """
    up = "../" * (len(page.relative_to(ROOT).parts) - 1)
    for name, make in PAGES[page].items():
        begin, end = marks(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        block = make().strip().replace("](../", f"]({up}")
        text = f"{before}{begin}\n\n{block}\n\n{end}{after}"
    return text


def draw() -> None:
    """Draw the loss on new words by occurrence, one line for each of the pictured methods."""
    result = Result.load(ACROSS)
    figure = occurrence_figure(
        replace(result, methods={name: result.methods[name] for name in PICTURED})
    )
    assert figure is not None, "the text across domains has new words"
    save(figure, PICTURE)


def _cost(result: Result, name: str) -> float:
    """Return the time a token of a method in times of the base's alone."""
    return result.methods[BASE].tokens_per_second / result.methods[name].tokens_per_second


def _headed(parts: Iterable[str]) -> str:
    """Return parts of a page with their titles one level below its sections."""
    return "\n".join(parts).rstrip().replace("## ", "### ") + "\n"


def _headings(results: Iterable[Result]) -> dict[str, Result]:
    """Return the results by what tells them apart: the scenario, and its normalisation where it
    comes twice.
    """
    results = list(results)
    labels = Counter(result.scenario.label for result in results)
    return {
        result.scenario.label
        if labels[result.scenario.label] == 1
        else f"{result.scenario.label}, {result.scenario.normalization}": result
        for result in results
    }


def main() -> int:
    stale = False
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = render(page, text)
        stale |= new != text
        if "--check" not in sys.argv:
            page.write_text(new, encoding="utf-8")
    if "--check" in sys.argv:
        return int(stale)
    draw()
    real_tables.draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
