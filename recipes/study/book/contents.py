"""Contents of the book: from the files to its sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hebblm.report.tables.table import Column, Table
from hebblm.vision import paper
from recipes.study.book.claims import (
    base_lines,
    claim_tables,
    language_claims,
    other_settings_tables,
)
from recipes.study.book.cost import cost_sections
from recipes.study.book.image_claims import image_claims
from recipes.study.book.images import image_sections
from recipes.study.book.language import language_sections
from recipes.study.book.reasons import likely_reason
from recipes.study.book.section import Section
from recipes.study.book.sources import Sources
from recipes.study.book.standing import RULE, counted_runs
from recipes.study.book.tuning import tuning_sections
from recipes.study.readings.record import Readings, readings_table

TITLE = "Results of hebblm next to the paper"


def contents(sources: Sources) -> list[Section]:
    """Return the book: claims, language models, readings, tuning, images, cost, and where every
    number comes from.
    """
    return [
        *_claims(sources),
        *language_sections(sources.language),
        *_readings(sources.readings),
        *tuning_sections(sources.tunings),
        *image_sections(sources.images),
        *cost_sections(sources.costs),
        _origins(sources),
    ]


def _readings(found: Mapping[str, Readings]) -> list[Section]:
    """Return the chapter on what the paper leaves open, one table for all texts; none without
    readings.
    """
    if not found:
        return []
    lines = []
    for name, readings in found.items():
        scenario = ", ".join(f"{key} {value}" for key, value in readings.scenario.items())
        by = readings.provenance
        lines.append(
            f"{name}: {scenario}. {by.get('command')}: commit {str(by.get('commit'))[:12]}."
        )
    return [Section("What the paper leaves open", tuple(lines), (readings_table(found),))]


def _claims(sources: Sources) -> list[Section]:
    """Return the chapter that holds the runs against what the paper claims."""
    runs = sources.language
    counting = counted_runs(runs)
    language = [
        replace(claim, reason=likely_reason(claim, runs[claim.run]))
        for claim in language_claims(counting)
    ]
    kinds = (
        (language, "language models, nats per token"),
        (image_claims(sources.images), "images, percentage points"),
    )
    claims = [claim for found, _ in kinds for claim in found]
    if not claims:
        return []
    counts = Counter(claim.outcome for claim in claims)
    line = (
        f"Of {len(claims)} comparisons between methods {counts['reproduced']} come out as in the "
        "paper "
        f"({paper.SOURCE}), {counts['reversed']} the other way round, and {counts['undecided']} "
        "are undecided: text by "
        "paired 95 % intervals over blocks of 200 tokens, images over the seeds. The base models "
        "are not the paper's."
    )
    tables = [table for found, unit in kinds for table in claim_tables(found, unit)]
    others = {name: result for name, result in runs.items() if name not in counting}
    tables += other_settings_tables(language, language_claims(others))
    lines = (line, *((RULE,) if others else ()), *base_lines(counting))
    return [Section("The paper's claims", lines, tuple(tables))]


def _origins(sources: Sources) -> Section:
    """Return the files, with commands, commits and hashes; those that the book does not know in a
    line each.
    """
    columns = (
        Column("File"),
        Column("Schema"),
        Column("Command"),
        Column("Commit"),
        Column("sha256"),
    )
    rows = tuple(
        (place, origin.schema, origin.command, origin.commit, origin.sha256[:16])
        for place, origin in sources.origins.items()
    )
    lines = tuple(
        f"{place} is left out: the book does not know its schema {schema}."
        for place, schema in sources.unknown.items()
    )
    table = Table.of_cells("files", "Files", columns, rows)
    return Section("Where the numbers come from", lines, (table,) if rows else ())
