"""Lists of alternatives from recognisers, one JSON object per line, and the same lists ranked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hebblm.errors import UserError
from hebblm.text.formats import BOM, opened, raw_lines

if TYPE_CHECKING:  # it loads torch, and an error message must not wait for that
    from hebblm.reader.reader import Reader

FORM = 'write {"id": ..., "before": "...", "candidates": [{"text": "...", "score": 0.0}, ...]}'


class Candidate(msgspec.Struct, frozen=True):
    """One of several texts, and its recogniser's log-probability; "" is silence."""

    text: str
    score: float | None = None


class Alternatives(msgspec.Struct, frozen=True):
    """Texts for one place; one of them is right."""

    id: str | int
    candidates: list[Candidate]
    before: str = ""


Line = tuple[str, Alternatives]
"""Place of alternatives in a file, for messages, and the alternatives."""


def read_lists(path: Path) -> list[Line]:
    """Read all lists of a file; an error names the number of a line that is not a list.

    Keys that are not in the form are ignored.
    """
    lists: list[Line] = []
    with opened(path) as stream:
        for number, raw in enumerate(raw_lines(stream, path), 1):
            if not (line := raw.removeprefix(BOM).strip()):
                continue
            place = f"{path} line {number}"
            try:
                alternatives = msgspec.json.decode(line, type=Alternatives)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise UserError(f"{place} holds no alternatives ({error}); {FORM}") from error
            if not alternatives.candidates:
                raise UserError(f"{place} has no candidate; write one, or remove the line")
            lists.append((place, alternatives))
    if not lists:
        raise UserError(f"{path} holds no alternatives; {FORM}")
    return lists


def priors(candidates: Sequence[Candidate]) -> list[float]:
    """Return the scores of a list's candidates; one without a score counts as the worst that has
    one.
    """
    worst = min((one.score for one in candidates if one.score is not None), default=0.0)
    return [worst if one.score is None else one.score for one in candidates]


def rank_lists(reader: Reader, lists: Iterable[Line], weight: float) -> Iterator[bytes]:
    """Yield a line of JSON for each list: its id and its candidates, best first."""
    for place, one in lists:
        try:
            ranked = reader.rank(
                [candidate.text for candidate in one.candidates],
                one.before,
                prior=priors(one.candidates),
                weight=weight,
            )
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        candidates = [
            {
                "text": alternative.text,
                "total": alternative.score,
                "log_prob": alternative.log_prob,
                "unadapted": alternative.unadapted,
                "score": alternative.prior,
            }
            for alternative in ranked
        ]
        yield msgspec.json.encode({"id": one.id, "candidates": candidates}) + b"\n"
