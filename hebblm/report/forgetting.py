"""What a method scores on the source domain's own text before and after it read another domain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hebblm.report.fields import Fields


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Mean losses on the source domain's text, which is read without learning from it; nats per token.

    Args:
        before: with the base as trained and the memory as it was at first.
        after: with the base as the stream left it, and the memory emptied of the stream.
        memory_kept: with the base as the stream left it, and the memory as well; None for a method without memory.
    """

    before: float
    after: float
    memory_kept: float | None = None

    @classmethod
    def read(cls, fields: Fields) -> Forgetting:
        """Read the losses from checked JSON fields."""
        return cls(fields.number("before"), fields.number("after"), fields.optional_number("memory_kept"))

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)
