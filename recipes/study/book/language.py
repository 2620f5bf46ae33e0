"""Chapters on language models: all runs at a glance, readings side by side, and every run by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hebblm.adapt.methods.predictor import dotted
from hebblm.models.presets import PRESETS, get_preset
from hebblm.report.plots.drawing import Picture
from hebblm.report.plots.figures import figures
from hebblm.report.render.result import Result
from hebblm.report.result.numbers import Cell
from hebblm.report.result.schema import scenario_label
from hebblm.report.tables.by_part import (
    frequency_table,
    gain_table,
    occurrence_table,
    occurrences_by_run,
)
from hebblm.report.tables.facts import flatten, hyperparameter_table, scenario_line
from hebblm.report.tables.overall import comparison_table, runs_table
from hebblm.report.tables.table import Column, Table, present
from hebblm.report.tables.texts import forgetting_table
from recipes.study.book.section import Section
from recipes.study.paper import paper_tables

# of the scenario, in addition to those that every result has
_POLICIES = "new_rows", "update_every"


def language_sections(runs: Mapping[str, Result]) -> list[Section]:
    """Return the chapters, none without runs."""
    if not runs:
        return []
    overview = Section(
        "Language models",
        tuple(scenario_line(result, name) for name, result in runs.items()),
        (run_table(runs),),
    )
    return [overview, *_readings(runs), *(_run(name, result) for name, result in runs.items())]


def run_table(runs: Mapping[str, Result]) -> Table:
    """Return one row a run: scenario, scale of the base model, tokens, seed."""
    columns = (
        Column("Run"),
        Column("Scenario"),
        Column("Base model"),
        Column("Parameters", "count"),
        Column("Its validation perplexity", "perplexity"),
        Column("Tokens scored", "count"),
        Column("Seed"),
    )
    rows = tuple(
        (
            name,
            result.scenario.label,
            preset_of(result),
            _number(result, "parameters"),
            _number(result, "valid_perplexity"),
            result.scenario.tokens,
            str(result.provenance.get("seed")),
        )
        for name, result in runs.items()
    )
    return Table.of_cells("runs", "Runs", columns, rows)


def preset_of(result: Result) -> str:
    """Return the preset whose shape the base model has, with how it came about; ``other`` for any
    other shape.
    """
    model, scenario = result.model, result.scenario
    shape = tuple(model.get(key) for key in ("embedding_dim", "hidden_dim", "layers"))
    vocabulary = int(model.get("vocabulary_size") or 1)
    for name in PRESETS:
        known = get_preset(name, scenario.source, vocabulary, 0).model
        if shape == (known.embedding_dim, known.hidden_dim, known.layers):
            epochs = model.get("epochs")
            return name if epochs is None else f"{name}, {epochs} epochs"
    return "other"


def _run(name: str, result: Result) -> Section:
    """Return everything about one run."""
    by = result.provenance
    origin = (
        f"{by.get('command')}: commit {str(by.get('commit'))[:12]}, base model {preset_of(result)}."
    )
    memory = ", ".join(f"{key} {value}" for key, value in flatten(result.memory))
    tables = present(
        *paper_tables(result),
        comparison_table(result),
        frequency_table(result),
        gain_table(result),
        occurrence_table(result),
        forgetting_table(result),
        hyperparameter_table(result),
    )
    return Section(
        f"{result.scenario.label}: {name}",
        (scenario_line(result), *([f"Memory: {memory}"] if memory else []), origin),
        tuple(replace(table, title=f"{table.title} ({name})") for table in tables),
        tuple(
            Picture(f"{name.replace('/', '-')}-{kind}", f"{caption}, {name}", figure)
            for kind, caption, figure in figures(result)
        ),
        level=2,
    )


def _readings(runs: Mapping[str, Result]) -> list[Section]:
    """Return, for each scenario that was run more than once, its runs side by side with what they
    differ in.
    """
    groups: dict[tuple[str, str, str], dict[str, Result]] = {}
    for name, result in runs.items():
        scenario = result.scenario
        groups.setdefault((scenario.source, scenario.target, scenario.split), {})[name] = result
    return [
        Section(
            f"{label}: its runs side by side",
            tables=(
                replace(runs_table(group), title=f"Methods by run on {label}"),
                *(
                    replace(table, title=f"{table.title}, {label}")
                    for table in present(occurrences_by_run(group))
                ),
                *_differences(label, group),
            ),
            level=2,
        )
        for (source, target, split), group in groups.items()
        for label in [scenario_label(source, target, split)]
        if len(group) > 1
    ]


def _differences(label: str, group: Mapping[str, Result]) -> list[Table]:
    """Return the settings that the runs of a group do not share; none where they share all."""
    settings = {name: _settings(result) for name, result in group.items()}
    keys = list(dict.fromkeys(key for values in settings.values() for key in values))
    rows: list[tuple[Cell, ...]] = []
    for key in keys:
        values = [settings[name].get(key) for name in group]
        if len(set(values) - {None}) > 1:  # None: the run lacks the method
            rows.append((key, *values))
    if not rows:
        return []
    columns = (Column("Setting"), *(Column(name) for name in group))
    return [
        Table.of_cells("differences", f"What the runs on {label} differ in", columns, tuple(rows))
    ]


def _settings(result: Result) -> dict[str, str]:
    """Return scenario, memory, base and hyper-parameters by name, as text."""
    scenario = result.scenario
    named = {
        "normalization": scenario.normalization,
        "vocabulary": scenario.vocabulary,
        **{key: value for key, value in flatten(scenario.extra) if key in _POLICIES},
        "tokens": f"{scenario.tokens:,}",
        **{f"memory.{key}": value for key, value in flatten(result.memory) if key != "entries"},
        **{key: value for key, value in flatten(result.model) if key.startswith("update.")},
        "weights_sha256": str(result.model.get("weights_sha256", ""))[:16],
    }
    for method, item in result.methods.items():
        own, found = dotted(method), {}
        for key, value in flatten(item.hyperparameters):
            # Combinations have the settings of their parts by section, single methods have them
            # plain.
            short = key.removeprefix("adaptation.")
            found[short if "." in short else f"{own}.{short}"] = value
        named |= {key: value for key, value in found.items() if key not in named}
    return named


def _number(result: Result, key: str) -> float | None:
    """Return a number that the model's description may have."""
    value = result.model.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
