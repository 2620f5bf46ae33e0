"""The JSON files that the book is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.evaluation.defaults import TUNED_SCHEMA
from hebblm.io.files import read_json, sha256
from hebblm.report.render.result import Result
from hebblm.report.result.record import read
from hebblm.report.result.schema import FILE_NAME
from hebblm.report.result.schema import SCHEMA as RESULT_SCHEMA
from hebblm.vision.result import SCHEMA as VISION_SCHEMA
from recipes.bench.record import SCHEMA as BENCH_SCHEMA
from recipes.bench.record import BenchResult
from recipes.study.readings.record import FILE_NAME as READINGS_FILE
from recipes.study.readings.record import SCHEMA as READINGS_SCHEMA
from recipes.study.readings.record import Readings

TUNED_FILE = "tuned.json"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Values found by hebblm-tune."""

    values: Mapping[str, Any]  # the best value by dotted name
    nll: Mapping[str, float]  # by method, nats per token at its best values, on validation text
    scenario: Mapping[str, Any]  # source, target, tokens and policies
    tried: Mapping[str, Sequence[Any]]  # by method, the points that were tried
    provenance: Mapping[str, Any]  # command, commit, versions

    @property
    def points(self) -> dict[str, int]:
        """How many points were tried, by method."""
        return {name: len(tried) for name, tried in self.tried.items()}


@dataclass(frozen=True, slots=True)
class _Signed:
    """Keys that every file has whatever its schema."""

    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of the numbers of one file: its schema, command, commit and hash."""

    schema: str
    command: str
    commit: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Sources:
    """All files of a folder of results, by name: the file's folder, or the file without its
    suffix.
    """

    language: dict[str, Result] = field(default_factory=dict)  # evaluations of language models
    tunings: dict[str, Tuning] = field(default_factory=dict)  # tuned hyper-parameters
    # what the paper leaves open, compared
    readings: dict[str, Readings] = field(default_factory=dict)
    costs: dict[str, BenchResult] = field(default_factory=dict)  # measurements of cost
    images: dict[str, dict[str, Any]] = field(default_factory=dict)  # image experiments, as JSON
    # by path, the schema that the book does not know
    unknown: dict[str, str] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)  # by path


def load_sources(root: Path) -> Sources:
    """Read every JSON file below a folder, in the order of their paths.

    A ``config.json`` next to what it belongs to, tuned values or a model, says nothing of its own
    and is passed over.
    """
    paths = (
        sorted(path for path in root.rglob("*.json") if not _is_companion(path))
        if root.is_dir()
        else []
    )
    if not paths:
        raise UserError(
            f"no JSON file under {root}; name a folder of results such as recipes/results"
        )
    sources = Sources()
    for path in paths:
        place = path.relative_to(root)
        _add(sources, path, place.as_posix(), _name(place))
    return sources


def _add(sources: Sources, path: Path, place: str, name: str) -> None:
    """Read one file and file it by its schema."""
    try:
        document = read_json(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == RESULT_SCHEMA:
        sources.language[name] = Result.from_json(document, str(path))
    elif schema == TUNED_SCHEMA:
        sources.tunings[name] = read(Tuning, document, str(path))
    elif schema == READINGS_SCHEMA:
        sources.readings[name] = Readings.from_json(document, str(path))
    elif schema == BENCH_SCHEMA:
        sources.costs[name] = BenchResult.load(path)
    elif schema == VISION_SCHEMA:
        sources.images[name] = document
    else:
        sources.unknown[place] = repr(schema)
        return
    by = read(_Signed, document, str(path)).provenance
    sources.origins[place] = Origin(
        schema, str(by.get("command", "")), str(by.get("commit") or "unknown")[:12], sha256(path)
    )


def _is_companion(path: Path) -> bool:
    """Return whether a file only repeats, for a command or a model, what another one next to it
    stands for.
    """
    owners = (TUNED_FILE, "model.safetensors")
    return path.name == "config.json" and any(path.with_name(owner).is_file() for owner in owners)


def _name(place: Path) -> str:
    """Return a short name of a file: that of its folder where it is the folder's result."""
    if place.name in (FILE_NAME, TUNED_FILE, READINGS_FILE) and place.parent != Path():
        return place.parent.as_posix()
    return place.with_suffix("").as_posix()
