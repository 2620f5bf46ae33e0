"""Content of ``result.json`` (schema ``hebblm-result/1``): the numbers of one evaluation and their
provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final, Literal, Self

from hebblm.adapt.renamed import present_keys
from hebblm.errors import UserError
from hebblm.io.files import Count, read_json, write_json
from hebblm.report.result.accuracy import Accuracy
from hebblm.report.result.methods import BASE
from hebblm.report.result.parts import Bootstrap, FrequencyBucket, Gain
from hebblm.report.result.record import decode, encode, plain, read

SCHEMA = "hebblm-result/1"
FILE_NAME = "result.json"
RUN: Final = "run"
SHARED: Final = "shared"
METHOD: Final = "method"
PIECES_OF_PARTS: Final = "pieces_of_parts"  # key: the pieces of each part, of a model of pieces
_TEXT = "text:"  # before the path of a text of one's own


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Mean losses on the source domain's text, which is read without learning from it; nats per
    token.
    """

    before: float  # with the base as trained and the memory as it was at first
    after: float  # with the base as the stream left it, and the memory emptied of the stream
    # with the base as the stream left it, and the memory as well; None for a method without memory
    memory_kept: float | None = None


@dataclass(frozen=True, slots=True)
class MethodResult:
    """Numbers of one method on the whole stream."""

    nll: float  # mean loss in nats per token
    perplexity: float  # exp(nll)
    # mean loss of the tokens outside the source vocabulary; None without such tokens
    oov_nll: float | None
    in_vocabulary_nll: float | None  # mean loss of the other tokens; None without such tokens
    frequency: tuple[FrequencyBucket, ...]  # the loss by training count
    hyperparameters: Mapping[str, Any]  # the settings that produced the numbers
    seconds: float  # time spent on this method
    tokens_per_second: float  # tokens divided by seconds; pieces, where tokens are pieces of words
    # queries whose neighbours' loss rose while they were adapted; None where that was not checked
    rose_queries: Count | None = None
    # those that were run again at a stable rate; None where that was not checked
    stabilized_queries: Count | None = None
    words_perplexity: float | None = None  # perplexity per word for a subword vocabulary
    # loss in bits per byte of the raw text, the spelling of what has no id included
    bits_per_byte: float | None = None
    # points (tokens scored so far, mean loss so far in nats); of pieces, where tokens are pieces of
    # words
    running: tuple[tuple[int, float], ...] = ()
    # the loss of new words by which occurrence of their word in the stream they are
    oov_occurrences: tuple[FrequencyBucket, ...] = ()
    gains: tuple[Gain, ...] = ()  # what the method gains over the unadapted model, part by part
    # what the source domain's text costs before and after; None where that was not asked for
    forgetting: Forgetting | None = None
    # mean loss in nats per piece where tokens are pieces of words; all other losses are per word
    # then
    piece_nll: float | None = None
    piece_perplexity: float | None = None  # exp(piece_nll)
    # how well it suggests words, part by part; empty where that was not asked for
    accuracy: tuple[Accuracy, ...] = ()
    # further keys of the file, kept as they are
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Mean loss in nats of the predicted units: pieces of words, or words."""
        return self.nll if self.piece_nll is None else self.piece_nll


@dataclass(frozen=True, slots=True)
class ScenarioRecord:
    """Record of a scenario: model, text and policies."""

    kind: str  # ``intra-domain`` or ``cross-domain``
    source: str  # corpus of the base model
    target: str  # corpus of the scored stream
    split: str  # split of the target
    normalization: str  # ``raw`` or ``lower``
    vocabulary: str  # ``union`` or ``open``
    tokens: Count  # tokens scored; words, where the model reads pieces of them
    oov_tokens: Count  # those among them outside the source vocabulary
    oov_types: Count  # distinct words among those
    # further keys of the file, kept as they are
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """A short name such as ``wt2-to-ptb test`` or ``ptb valid``."""
        return scenario_label(self.source, self.target, self.split)

    @property
    def oov_rate(self) -> float:
        """Share of the tokens that lie outside the source vocabulary, between 0 and 1."""
        if not self.tokens:
            return 0.0
        return self.oov_tokens / self.tokens


def corpus_name(corpus: str) -> str:
    """Return a corpus's name for people: for a user's own text its file or folder, else the name
    itself.
    """
    if not corpus.startswith(_TEXT):
        return corpus
    if corpus == f"{_TEXT}-":
        return "standard input"
    return PurePath(corpus.removeprefix(_TEXT)).name or corpus


def counted_in(result: StoredResult) -> str:
    """Return in what a result's words were counted, for people: training, or the text that the user
    named instead.
    """
    extra = result.scenario.extra
    counted = extra.get("words_counted_in")
    if counted is None or extra.get("training_text", counted) == counted:
        return "training"
    return corpus_name(counted)


def count_label(result: StoredResult) -> str:
    """Return the title of a column of word counts."""
    counted = counted_in(result)
    if counted == "training":
        return "Training count"
    return f"Count in {counted}"


def scenario_label(source: str, target: str, split: str) -> str:
    """Return a short name such as ``wt2-to-ptb test`` or ``ptb valid``."""
    name = corpus_name(target)
    if source != target:
        name = f"{corpus_name(source)}-to-{name}"
    return f"{name} {split}"


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a run's time, each second counted in one part only."""

    # of all methods, of those that rest on it, or one's own
    kind: Literal["run", "shared", "method"]
    name: str  # the method's where it is one's own
    seconds: float


@dataclass(frozen=True, slots=True)
class Seconds:
    """The time of a whole run, from the scenario that was opened to the numbers."""

    total: float  # of all threads on a CPU, of the clock on a GPU; so are those of its parts
    # what is known of them; the rest is the loop itself, tables and intervals
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class StoredResult:
    """Result of an evaluation: scenario, model, memory, provenance, a :class:`MethodResult` per
    method, its time.
    """

    scenario: ScenarioRecord
    model: Mapping[str, Any]
    memory: Mapping[str, Any]
    provenance: Mapping[str, Any]
    methods: Mapping[str, MethodResult]
    extra: Mapping[str, Any] = field(default_factory=dict)
    seconds: Seconds | None = None

    @property
    def of_pieces(self) -> bool:
        """Whether the model reads pieces of words: then comparisons use pieces."""
        return any(item.piece_nll is not None for item in self.methods.values())

    @property
    def scored(self) -> str:
        """Number of scored units, such as ``3,000 tokens`` or ``3,000 pieces``."""
        if self.of_pieces:
            return f"{self.scenario.extra.get('pieces', 0):,} pieces"
        return f"{self.scenario.tokens:,} tokens"

    @property
    def text(self) -> tuple[object, ...]:
        """What tells the text from others: its hash or else its name, its case, and its length if a
        part was read.
        """
        scenario = self.scenario
        extra = self.scenario.extra
        known = self.provenance.get("data_sha256", {}).get(scenario.target, scenario.target)
        length = extra.get("bytes", (extra.get("text") or {}).get("bytes", scenario.tokens))
        if extra.get("whole_split"):
            length = None
        return str(known), scenario.split, scenario.normalization, length

    @property
    def bootstrap(self) -> Bootstrap:
        """Options of its intervals."""
        return Bootstrap.of(self.extra.get("bootstrap", {}))

    def gain(self, method: str, other: str = BASE, part: str = "All") -> Gain | None:
        """Return the gain of a method over another on a part of the stream, None if the file does
        not have it.

        Args:
            method: name of the method.
            other: name of the other; by default the base.
            part: All, OOV (new words), Known, or training counts such as ``<50``: per word; Pieces:
                per piece.
        """
        if other == BASE:
            return next((gain for gain in self.methods[method].gains if gain.part == part), None)
        paired = self.extra.get("paired", {})
        by_part = paired.get(other, {}).get(method, {})
        if part in by_part:
            tokens, gain, low, high = by_part[part]
            return Gain(part, tokens, gain, low, high)
        by_part = paired.get(method, {}).get(other, {})
        if part in by_part:
            # the other way round: the gain changes its sign, and the ends change places
            tokens, gain, low, high = by_part[part]
            return Gain(part, tokens, _negative(gain), _negative(high), _negative(low))
        return None

    @classmethod
    def from_json(cls, value: Any, where: str = FILE_NAME) -> Self:
        """Build a result from parsed JSON.

        Raises:
            UserError: another schema, a missing key, a value of the wrong type, or a nan.
        """
        schema = value.get("schema") if isinstance(value, dict) else None
        if schema != SCHEMA:
            raise UserError(
                f"{where} has schema {schema!r}, expected {SCHEMA!r}; give a file that hebblm-eval "
                "wrote"
            )
        document = decode(value, where)
        for key, kind in (("scenario", ScenarioRecord), ("seconds", Seconds)):
            if key in document:
                document[key] = read(kind, document[key], f"{where}.{key}")
        methods = document.get("methods")
        if methods == {}:
            raise UserError(f"{where} has no methods; evaluate at least one")
        if isinstance(methods, dict):
            present = {}
            for name, item in methods.items():
                method = read(MethodResult, item, f"{where}.methods.{name}")
                settings = present_keys(method.hyperparameters)
                present[name] = replace(method, hyperparameters=settings)
            document["methods"] = present
        return read(cls, {key: item for key, item in document.items() if key != "schema"}, where)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read ``path``, a ``result.json`` or the folder that holds one.

        Raises:
            UserError: the file is missing, truncated, of another schema, or unreadable.
        """
        path = Path(path)
        file = path / FILE_NAME if path.is_dir() else path
        return cls.from_json(read_json(file), str(file))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; infinite numbers as ``"inf"``.

        Raises:
            UserError: a number is nan.
        """
        document = {
            "schema": SCHEMA,
            **plain(self),
            "scenario": plain(self.scenario),
            "methods": {name: plain(item) for name, item in self.methods.items()},
        }
        encoded: dict[str, Any] = encode(document, "result")
        return encoded

    def save(self, directory: Path | str) -> Path:
        """Write ``directory/result.json`` atomically and return its path."""
        path = Path(directory) / FILE_NAME
        write_json(path, self.to_json(), seal=True)
        return path


def _negative(number: float | None) -> float | None:
    if number is None:
        return None
    return -number
