"""The typed form of ``result.json`` (schema ``hebblm-result/1``): what one evaluation found and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hebblm.errors import UserError
from hebblm.files import read_json, write_json
from hebblm.report import numbers
from hebblm.report.fields import Fields
from hebblm.report.forgetting import Forgetting
from hebblm.report.gains import Gain
from hebblm.report.naming import scenario_label
from hebblm.report.seconds import Seconds

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "hebblm-result/1"
FILE_NAME = "result.json"
QUERY_COUNTS = ("rose_queries", "stabilized_queries")


@dataclass(frozen=True, slots=True)
class FrequencyBucket:
    """The tokens whose training count falls into one range.

    Args:
        bucket: the range as text, such as ``"50-100"``.
        tokens: how many tokens of the stream fall into it.
        nll: their mean loss in nats per token; None for an empty bucket.
        perplexity: exp(nll); None for an empty bucket.
    """

    bucket: str
    tokens: int
    nll: float | None
    perplexity: float | None

    @classmethod
    def from_nll(cls, bucket: str, tokens: int, nll: float | None) -> FrequencyBucket:
        """Build a bucket whose perplexity follows from its loss."""
        return cls(bucket, tokens, nll, None if nll is None else numbers.perplexity(nll))

    @classmethod
    def read(cls, fields: Fields) -> FrequencyBucket:
        """Read a bucket from checked JSON fields."""
        return cls(
            fields.text("bucket"),
            fields.count("tokens"),
            fields.optional_number("nll"),
            fields.optional_number("perplexity"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the contract's keys."""
        return {"bucket": self.bucket, "tokens": self.tokens, "nll": self.nll, "perplexity": self.perplexity}


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method scored on the whole stream.

    Args:
        nll: mean loss in nats per token.
        perplexity: exp(nll).
        oov_nll: mean loss of the tokens outside the source vocabulary; None where there are none.
        in_vocabulary_nll: mean loss of the other tokens; None where there are none.
        frequency: the loss by training count.
        hyperparameters: the settings that produced the numbers.
        seconds: time spent on this method.
        tokens_per_second: tokens divided by seconds.
        rose_queries: queries whose neighbours' loss rose while they were adapted; None where nothing is.
        stabilized_queries: those that were run again at a stable rate; None where nothing is adapted.
        words_perplexity: perplexity per word for a subword vocabulary.
        bits_per_byte: loss in bits per byte of the raw text.
        running: points (tokens scored so far, mean loss so far in nats).
        oov_occurrences: the loss of out-of-vocabulary tokens by which occurrence of their word in the stream they are.
        gains: what the method gains over the unadapted model, part by part.
        forgetting: what the source domain's text costs before and after; None where that was not asked for.
        extra: further keys of the file, kept as they are.
    """

    nll: float
    perplexity: float
    oov_nll: float | None
    in_vocabulary_nll: float | None
    frequency: tuple[FrequencyBucket, ...]
    hyperparameters: Mapping[str, Any]
    seconds: float
    tokens_per_second: float
    rose_queries: int | None = None
    stabilized_queries: int | None = None
    words_perplexity: float | None = None
    bits_per_byte: float | None = None
    running: tuple[tuple[int, float], ...] = ()
    oov_occurrences: tuple[FrequencyBucket, ...] = ()
    gains: tuple[Gain, ...] = ()
    forgetting: Forgetting | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> MethodResult:
        """Read a method's entry from checked JSON fields."""
        return cls(
            nll=fields.number("nll"),
            perplexity=fields.number("perplexity"),
            oov_nll=fields.optional_number("oov_nll"),
            in_vocabulary_nll=fields.optional_number("in_vocabulary_nll"),
            frequency=tuple(FrequencyBucket.read(item) for item in fields.entries("frequency")),
            hyperparameters=fields.mapping("hyperparameters"),
            seconds=fields.number("seconds"),
            tokens_per_second=fields.number("tokens_per_second"),
            **{name: fields.count(name) if name in fields else None for name in QUERY_COUNTS},
            words_perplexity=fields.number("words_perplexity") if "words_perplexity" in fields else None,
            bits_per_byte=fields.number("bits_per_byte") if "bits_per_byte" in fields else None,
            running=fields.curve("running") if "running" in fields else (),
            oov_occurrences=tuple(
                FrequencyBucket.read(item) for item in fields.optional_entries("oov_occurrences")
            ),
            gains=tuple(Gain.read(item) for item in fields.optional_entries("gains")),
            forgetting=Forgetting.read(fields.nested("forgetting")) if "forgetting" in fields else None,
            extra=fields.rest(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the contract's keys, and the optional ones that have a value."""
        optional = {
            **{name: getattr(self, name) for name in QUERY_COUNTS},
            "words_perplexity": self.words_perplexity,
            "bits_per_byte": self.bits_per_byte,
            "running": [list(point) for point in self.running] or None,
            "oov_occurrences": [bucket.to_json() for bucket in self.oov_occurrences] or None,
            "gains": [gain.to_json() for gain in self.gains] or None,
            "forgetting": None if self.forgetting is None else self.forgetting.to_json(),
        }
        return {
            "nll": self.nll,
            "perplexity": self.perplexity,
            "oov_nll": self.oov_nll,
            "in_vocabulary_nll": self.in_vocabulary_nll,
            "frequency": [bucket.to_json() for bucket in self.frequency],
            "hyperparameters": dict(self.hyperparameters),
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            **{key: value for key, value in optional.items() if value is not None},
            **self.extra,
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """Which model met which text, and under which policies.

    Args:
        kind: ``intra-domain`` or ``cross-domain``.
        source: corpus of the base model.
        target: corpus of the scored stream.
        split: split of the target.
        normalization: ``raw`` or ``lower``.
        vocabulary: ``union`` or ``open``.
        tokens: tokens scored.
        oov_tokens: those among them outside the source vocabulary.
        oov_types: distinct words among those.
        extra: further keys of the file, kept as they are.
    """

    kind: str
    source: str
    target: str
    split: str
    normalization: str
    vocabulary: str
    tokens: int
    oov_tokens: int
    oov_types: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """A short name such as ``wt2-to-ptb test`` or ``ptb valid``."""
        return scenario_label(self.source, self.target, self.split)

    @property
    def oov_rate(self) -> float:
        """Share of the tokens that lie outside the source vocabulary, between 0 and 1."""
        return self.oov_tokens / self.tokens if self.tokens else 0.0

    @classmethod
    def read(cls, fields: Fields) -> Scenario:
        """Read the scenario from checked JSON fields."""
        return cls(
            kind=fields.text("kind"),
            source=fields.text("source"),
            target=fields.text("target"),
            split=fields.text("split"),
            normalization=fields.text("normalization"),
            vocabulary=fields.text("vocabulary"),
            tokens=fields.count("tokens"),
            oov_tokens=fields.count("oov_tokens"),
            oov_types=fields.count("oov_types"),
            extra=fields.rest(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the contract's keys and the extra ones."""
        return {
            "kind": self.kind,
            "source": self.source,
            "target": self.target,
            "split": self.split,
            "normalization": self.normalization,
            "vocabulary": self.vocabulary,
            "tokens": self.tokens,
            "oov_tokens": self.oov_tokens,
            "oov_types": self.oov_types,
            **self.extra,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """One evaluation: scenario, model, memory, provenance, a :class:`MethodResult` for every method, its time."""

    scenario: Scenario
    model: Mapping[str, Any]
    memory: Mapping[str, Any]
    provenance: Mapping[str, Any]
    methods: Mapping[str, MethodResult]
    extra: Mapping[str, Any] = field(default_factory=dict)
    seconds: Seconds | None = None

    def verdict(self) -> str:
        """Return who is best by how much and at what cost, or why that cannot be told."""
        from hebblm.report.summary import verdict

        return verdict(self)

    def table(self) -> str:
        """Return the methods, best first, as plain text that is Markdown too."""
        from hebblm.report.render import to_text
        from hebblm.report.summary import summary_table

        return to_text(summary_table(self))

    def _repr_html_(self) -> str:
        """Return verdict and table for a notebook."""
        from hebblm.report.html import element, table_html
        from hebblm.report.summary import summary_table

        return element("p", self.verdict()) + table_html(summary_table(self), level=4)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row a method, the lowest loss first.

        Losses and the gain over the LSTM, with both ends of its interval, are in nats per token; what is not known is
        missing.

        Raises:
            UserError: pandas is not installed.
        """
        from hebblm.report.summary import frame

        return frame(self)

    @classmethod
    def from_json(cls, value: Any, where: str = FILE_NAME) -> Result:
        """Build a result from parsed JSON.

        Raises:
            UserError: another schema, a missing key, a value of the wrong type, or a nan.
        """
        schema = value.get("schema") if isinstance(value, dict) else None
        if schema != SCHEMA:
            raise UserError(
                f"{where} has schema {schema!r}, expected {SCHEMA!r}; give a file that hebblm-eval wrote"
            )
        fields = Fields(numbers.decode(value, where), where)
        fields.text("schema")
        methods = {name: MethodResult.read(item) for name, item in fields.named_entries("methods").items()}
        if not methods:
            raise UserError(f"{where} has no methods; evaluate at least one")
        return cls(
            scenario=Scenario.read(fields.nested("scenario")),
            model=fields.mapping("model"),
            memory=fields.mapping("memory"),
            provenance=fields.mapping("provenance"),
            methods=methods,
            seconds=Seconds.read(fields.nested("seconds")) if "seconds" in fields else None,
            extra=fields.rest(),
        )

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read ``path``, a ``result.json`` or the folder that holds one.

        Raises:
            UserError: the file is missing, truncated, of another schema, or unreadable.
        """
        file = path / FILE_NAME if path.is_dir() else path
        try:
            value = read_json(file)
        except OSError as error:
            raise UserError(
                f"cannot read {file}: {error.strerror}; check the path and its permissions"
            ) from error
        return cls.from_json(value, str(file))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; infinite numbers as ``"inf"``.

        Raises:
            UserError: a number is nan.
        """
        plain = {
            "schema": SCHEMA,
            "scenario": self.scenario.to_json(),
            "model": dict(self.model),
            "memory": dict(self.memory),
            "provenance": dict(self.provenance),
            "methods": {name: method.to_json() for name, method in self.methods.items()},
            **({} if self.seconds is None else {"seconds": self.seconds.to_json()}),
            **self.extra,
        }
        encoded: dict[str, Any] = numbers.encode(plain, "result")
        return encoded

    def save(self, directory: Path | str) -> Path:
        """Write ``directory/result.json`` atomically and return its path."""
        path = Path(directory) / FILE_NAME
        write_json(path, self.to_json())
        return path
