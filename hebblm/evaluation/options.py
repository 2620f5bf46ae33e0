"""Options of an evaluation, which go whole from the command line or Python to the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import whole_number
from hebblm.report.result.accuracy import WORDS_ASKED
from hebblm.report.result.parts import DEFAULT_EDGES, parse_edges

# Metadata of a field that changes what is written, not what is computed: a run resumes without it.
WRITTEN = {"written": True}
# Metadata of a field that needs a text read as a single stream.
ONE_STREAM = {"one_stream": True}


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """What an evaluation finds and writes besides the losses of its methods.

    A field here is an option of ``hebblm-eval``, an argument of :func:`hebblm.evaluate`, and part
    of what a resumed run has to agree with. ``observers_for`` gives it its observer. In Python
    ``forgetting`` may be a number, short for itself and ``forgetting_tokens``, and
    ``accuracy_words`` a list of places in the text.

    Args:
        frequency_edges: bounds of the frequency buckets, such as 50,100,500.
        forgetting: across domains, also score the source's own text before and after the target is
            read.
        forgetting_tokens: number of tokens of the source's text, from its beginning.
        check: also count the queries whose neighbours' loss rose in MbPA, and compare its fast form
            with the exact one on one query in a thousand; takes about a tenth longer.
        accuracy: also find how often the next word is the first one or among five that a method
            suggests, the mean of 1/rank, and the share of keystrokes that a list of three saves;
            takes about twice the time, with a model of pieces longer.
        accuracy_words: words that a model of pieces is asked for, evenly spread; each takes some
            forward passes. A model of words is asked for all.
        log_samples: also write tokens.parquet, one row per token.
        log_neighbors: also write, for so many tokens, neighbors.parquet with what they retrieved,
            and components.parquet with what each part of a method gave to them.
        show_learned: also show what was learned: the words that changed most, three suggestions
            before and after reading, and in inspect.html the text shaded by gain; writes
            tokens.parquet as well.
    """

    frequency_edges: Sequence[int | str] = field(
        default_factory=lambda: list(DEFAULT_EDGES), metadata={"nargs": "+", **WRITTEN}
    )
    forgetting: bool = field(default=False, metadata=ONE_STREAM)
    forgetting_tokens: int = 10_000
    check: bool = False
    accuracy: bool = field(default=False, metadata=ONE_STREAM)
    accuracy_words: int | Sequence[int] = WORDS_ASKED
    log_samples: bool = field(default=False, metadata=WRITTEN)
    log_neighbors: int = field(default=0, metadata=ONE_STREAM)
    show_learned: bool = field(default=False, metadata={**ONE_STREAM, **WRITTEN})

    def __post_init__(self) -> None:
        for option in fields(EvalOptions):
            value = getattr(self, option.name)
            if isinstance(option.default, bool) and not isinstance(value, bool):
                raise UserError(f"{option.name}={value!r:.60} is not True or False; give one")
        self._set("frequency_edges", parse_edges(self.frequency_edges))
        self._set("forgetting_tokens", whole_number("forgetting_tokens", self.forgetting_tokens))
        self._set("log_neighbors", whole_number("log_neighbors", self.log_neighbors, 0))
        if self.log_neighbors and not self.log_samples:
            raise UserError(f"log_neighbors={self.log_neighbors} needs log_samples as well")
        if not isinstance(self.accuracy_words, Sequence):
            self._set("accuracy_words", whole_number("accuracy_words", self.accuracy_words))
            return
        if not self.accuracy_words:
            raise UserError(
                "accuracy_words names no word; give places in the text, or a number of words"
            )
        places = [whole_number("accuracy_words", place, 0) for place in self.accuracy_words]
        self._set("accuracy_words", places)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # checked, as a plain number

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the options that some arguments of :func:`hebblm.evaluate` give.

        Args:
            values: by name; other names are passed over.
        """
        names = {field.name for field in fields(EvalOptions)}
        known = {name: value for name, value in values.items() if name in names}
        forgetting = known.get("forgetting", False)
        if forgetting is None:
            known["forgetting"] = False
        elif not isinstance(forgetting, bool):
            known["forgetting"] = True
            known["forgetting_tokens"] = whole_number("forgetting", forgetting)
        return cls(**known)

    def evaluation(self) -> dict[str, Any]:
        """Return these options by name, without those of a class that has more."""
        return {field.name: getattr(self, field.name) for field in fields(EvalOptions)}

    @property
    def edges(self) -> tuple[int, ...]:
        """Bounds of the frequency buckets, ascending."""
        return parse_edges(self.frequency_edges)

    @property
    def writes_tokens(self) -> bool:
        """Whether the table of tokens is written."""
        return self.log_samples or self.show_learned

    def one_stream(self) -> list[str]:
        """Return the names of those that are asked for and follow a single stream."""
        return [
            field.name
            for field in fields(EvalOptions)
            if field.metadata.get("one_stream") and getattr(self, field.name)
        ]

    def identity(self) -> dict[str, Any]:
        """Return those that the numbers depend on, as JSON; a resumed run has to agree with it."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(EvalOptions)
            if not field.metadata.get("written")
        }
