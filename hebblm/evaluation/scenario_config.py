"""Options of a scenario, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_type_hints

from hebblm.adapt import checks
from hebblm.adapt.settings import scalar, words_of
from hebblm.errors import MOST, UserError
from hebblm.models.catalog import check_configured, is_causal, model_folder, trained_on
from hebblm.models.device import check_device
from hebblm.models.presets import check_preset
from hebblm.text.corpora import check_name, file_corpora
from hebblm.text.fitting import Splitting
from hebblm.text.prepared import DICTIONARY_FILE
from hebblm.text.records import CHOOSE

Groups = tuple[tuple[str, str | None, str], ...]
Content = Literal["both", "train", "test"]
MemoryScope = Literal["shared", "stream"]


MOST_NEIGHBORS = 100_000
SCENARIOS = (
    "cross_domain=A-to-B, intra_domain=A, source=A with target=B, checkpoint=DIR with text=PATH, "
    "or model=HUB_ID_OR_FOLDER with target=B"
)
"""Ways to name a scenario."""


def whole_number(name: str, value: Any, low: int = 1) -> int:
    """Return a whole number of at least ``low``, from Python, NumPy or torch.

    Raises:
        UserError: the value is not a whole number, is too small, or is too large to be exact.
    """
    number = scalar(value)
    if type(number) is int and low <= number <= MOST:
        return number
    raise UserError(
        f"{name} = {value!r:.60} must be at least {low}, and a whole number of at most {MOST}"
    )


def number_of_neighbors(k: Any) -> int:
    """Return K, a whole number whose neighbours fit into memory.

    Raises:
        UserError: the value is not such a number.
    """
    if (number := whole_number("k", k)) > MOST_NEIGHBORS:
        raise UserError(
            f"k = {number} must be at most {MOST_NEIGHBORS:,}, so that a query's neighbours fit"
        )
    return number


def as_strings(name: str, words: str | Iterable[str]) -> tuple[str, ...]:
    """Return words as a tuple; a string is one word, not a sequence of letters.

    Raises:
        UserError: one of them is not a string.
    """
    if isinstance(words, Iterable) and not isinstance(words, str):
        strings = tuple(words)
    else:
        strings = (words,)
    for word in strings:
        if not isinstance(word, str):
            raise UserError(f"{name} = {word!r:.60} is not a string; write it as one")
    return strings


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a model that reads texts, the same for every command.

    Args:
        tokenizer: how a model of words splits a text: auto, whitespace or moses. Auto splits like
            the model's own text, and at punctuation as well if that text was tokenised and the
            first text read is not; a saved memory or reader keeps its own way.
        context: tokens of the window that a model of transformers reads in; by default the window
            of its training, at most 4,096.
        stride: tokens by which that window moves on; by default half of it.
        dtype: number type of a transformers model's weights: auto (as they are stored, but float32
            for float16 on a CPU, and bfloat16 for the blocks of a GGUF file), float32, bfloat16 or
            float16.
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1.
    """

    # Headings of a command's help, the text below them, and their options.
    GROUPS: ClassVar[Groups] = (
        ("model and tokens", None, "tokenizer context stride dtype device"),
    )

    tokenizer: Splitting = "auto"
    context: int | None = None
    stride: int | None = None
    dtype: str = "auto"
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(ModelOptions):
    """Options of reading and learning, the same for every command.

    Args:
        max_tokens: number of tokens to read: words and ends of line, or the pieces of words that a
            model of transformers reads.
        seed: seed of everything random: the weights of a training, uniform rows, the resamples for
            intervals, the generated words.
    """

    max_tokens: int | None = None
    seed: int = 1111


@dataclass(frozen=True)
class ScenarioConfig(ReadingOptions):
    """Options of a scenario: a model and a text.

    Args:
        cross_domain: A-to-B, short for source=A with target=B.
        intra_domain: a corpus; its own model is evaluated on it.
        source: corpus of the base model: ptb, wt2, pydoc, numpy, text:PATH, hf:ID[:CONFIG] or a
            folder of hebblm-preprocess.
        target: corpus to read, named like a source; text:PATH takes the same paths as text=PATH.
        checkpoint: folder of a model or name of one that ships (hebblm-eval --models lists them),
            instead of the one that ships or is trained for the source.
        model: a causal language model of transformers, by hub id, folder or GGUF file, or one that
            is fetched by name (hebblm-eval --models lists them), instead of a checkpoint; if the
            model does not name its training text, `source` names a text to count words in.
        text: a file of text or of records (.jsonl, .json, .csv, .tsv, .parquet), also compressed
            (.gz, .zst, .xz), a folder of such files, or - for standard input; short for
            target=text:PATH.
        column: column of records that holds the text; by default text, or the only column of
            strings.
        split: test or valid; by default test, and all of a text file that the model was not trained
            on.
        preset: tiny, small, medium or paper; by default small for ptb and wt2, else tiny.
        normalization: raw or lower; by default the model's own; without a model, lower for
            wt2-to-ptb and ptb-to-wt2, else raw.
        vocabulary: union (a row for every target word from the start) or open (a row when its word
            is first observed).
        new_rows: initial value of the rows of new words: zero, uniform or mean.
        unk_share: share of the probability of <unk> that open spreads over words not seen yet.
        memory_content: both (training text, then the stream as it is observed), train or test (one
            of them); by default both within a domain, test across domains.
        training_entries: the most tokens of the training text to remember, from its end, so that
            the memory of a long text stays bounded.
        k: neighbours of each query.
        update_every: tokens between two updates of memory and base, the same for all methods; 1
            learns after every token. The paper uses 100.
        streams: number of contiguous parts of the text that are read side by side, cut between
            documents if it has enough; each has its own state and window. Dynamic evaluation still
            reads one stream.
        memory_scope: shared (the streams have one memory and one set of counts) or stream (each has
            its own).
        dynamic_parameters: parts of the names of the weights that learn in dynamic evaluation,
            separated by commas; by default all weights, or above 100 million parameters the last
            matrix of each layer in the last quarter.
        key: states that memories keep for such a model: last (those that enter its output layer),
            ffn-input (those that enter its last feed-forward layer) or the number of a layer;
            methods that adapt the head need last.
    """

    GROUPS: ClassVar[Groups] = (
        (
            "scenario",
            f"name one: {SCENARIOS}",
            "cross_domain intra_domain source target checkpoint model text column split tokenizer "
            "preset normalization "
            "vocabulary new_rows unk_share",
        ),
        (
            "reading",
            None,
            "memory_content training_entries k update_every streams memory_scope max_tokens device "
            "seed",
        ),
        ("models of transformers", None, "context stride dtype dynamic_parameters key"),
        ("methods", None, "methods plugin hyperparameters values set method around skip_dynamic"),
    )

    cross_domain: str | None = None
    intra_domain: str | None = None
    source: str | None = None
    target: str | None = None
    checkpoint: Path | None = None
    model: str | None = None
    text: Path | None = None
    column: str | None = None
    split: Literal["test", "valid"] | None = None
    preset: str | None = None
    normalization: Literal["raw", "lower"] | None = None
    vocabulary: Literal["union", "open"] = "union"
    new_rows: Literal["zero", "uniform", "mean"] = "zero"
    unk_share: float = 0.5
    memory_content: Content | None = None
    training_entries: int = 4_000_000
    k: int = 200
    update_every: int = 50
    streams: int = 1
    memory_scope: MemoryScope = "shared"
    dynamic_parameters: str | None = None
    key: str = "last"

    def __post_init__(self) -> None:
        for name in ("device", "dtype"):  # torch's own types are accepted by their names
            object.__setattr__(self, name, str(getattr(self, name)).removeprefix("torch."))
        for name, hint in get_type_hints(ScenarioConfig).items():
            value = getattr(self, name)
            if (words := words_of(hint)) and value is not None:
                checks.one_of(name, value, words)
            elif int in (hint, *get_args(hint)) and (value is not None or hint is int):
                object.__setattr__(
                    self, name, whole_number(name, value, 0 if name == "seed" else 1)
                )
        number_of_neighbors(self.k)
        if not isinstance(self.unk_share, int | float) or not 0 < self.unk_share < 1:
            raise UserError(f"unk_share = {self.unk_share} must lie in (0, 1)")
        if self.unk_share != ScenarioConfig.unk_share and self.vocabulary != "open":
            raise UserError(
                f"unk_share = {self.unk_share} has no effect with vocabulary union; use "
                "vocabulary=open"
            )
        if self.streams > 1 and self.vocabulary == "open":
            raise UserError(
                f"streams = {self.streams} do not go with vocabulary open, which numbers words by "
                "their first "
                "appearance; use vocabulary=union"
            )

    def corpora(self) -> tuple[str | None, str]:
        """Return source (None if the checkpoint names it) and target.

        Raises:
            UserError: no scenario, or several.
        """
        named = [self.cross_domain, self.intra_domain, self.target, self.text]
        if sum(value is not None for value in named) != 1:
            raise UserError(f"name one scenario: {SCENARIOS}")
        if self.cross_domain is not None:
            source, joint, target = self.cross_domain.partition("-to-")
            if not joint or not source or not target:
                raise UserError(
                    f"cross_domain={self.cross_domain!r} must read A-to-B, e.g. wt2-to-ptb"
                )
            return source, target
        if self.intra_domain is not None:
            return self.intra_domain, self.intra_domain
        if self.source is None and self.checkpoint is None and self.model is None:
            raise UserError(
                "`target` and `text` need source=CORPUS, checkpoint=DIR or "
                "model=HUB_ID_OR_FOLDER as well"
            )
        return self.source, self.target or f"text:{self.text}"

    def source_column(self) -> tuple[str | None, str | None]:
        """Return the column of the source's text, and a remedy if it has none: ``column`` is that
        of the target.
        """
        source, target = self.corpora()
        if source == target:
            return self.column, CHOOSE
        return None, None

    def scenario(self) -> dict[str, Any]:
        """Return the scenario's fields by name, without a command's own; shared ones come last."""
        in_order = sorted(fields(ScenarioConfig), key=attrgetter("kw_only"))
        return {field.name: getattr(self, field.name) for field in in_order}

    def arguments(self) -> list[str]:
        """Return the options that name this scenario, without split, number of tokens and
        streams.
        """
        plain = ScenarioConfig()
        words = []
        for name, value in self.scenario().items():
            if name in ("split", "max_tokens", "streams", "memory_scope"):
                continue
            if value != getattr(plain, name):
                words += [f"--{name.replace('_', '-')}", str(value)]
        return words

    def completed(self) -> Self:
        """Return the options completed from a checkpoint: its folder, its case policy, its corpus.

        The corpus becomes the source if the model has no dictionary in its folder, or its text is
        known by name.

        Raises:
            UserError: no such checkpoint, or an option that its kind of model does not have.
        """
        if self.checkpoint is not None and self.model is not None:
            raise UserError(
                f"checkpoint={self.checkpoint} and model={self.model} are two models; name one"
            )
        name = self.checkpoint or self.model
        if name is None:
            self._check_words()
            return self
        folder = model_folder(Path(name))
        if self.model is not None and folder is not None:
            check_configured(folder)
        if folder is None or is_causal(folder):
            return self._of_causal(str(name), folder)
        self._check_words()
        corpus = trained_on(folder)
        known = not (folder / DICTIONARY_FILE).is_file() or corpus.get("name") in file_corpora()
        asked = (self.source, self.intra_domain, self.cross_domain)
        source = corpus.get("name") if known and asked == (None, None, None) else self.source
        policy = self.normalization or corpus.get("normalization")
        return replace(self, checkpoint=folder, model=None, source=source, normalization=policy)

    def _check_words(self) -> None:
        """Refuse options that a model of words does not use."""
        plain = ScenarioConfig()
        for name in ("context", "stride", "dtype", "dynamic_parameters", "key"):
            if (value := getattr(self, name)) != getattr(plain, name):
                raise UserError(
                    f"{name}={value} is for models of transformers; leave it out for others"
                )

    def _of_causal(self, name: str, folder: Path | None) -> Self:
        """Return the same options for a model of transformers, with the corpus that it names as its
        training text.
        """
        if self.vocabulary != "union":
            raise UserError(
                f"vocabulary={self.vocabulary} is for models of words; leave it out for {name}"
            )
        if (
            self.cross_domain is not None
            or self.intra_domain is not None
            or self.preset is not None
        ):
            raise UserError(
                f"{name} is read with target=CORPUS or text=PATH; leave other scenarios and "
                "presets out"
            )
        corpus = {} if folder is None else trained_on(folder)
        model = name if folder is None else str(folder)
        source = self.source or corpus.get("name")
        normalization = self.normalization or corpus.get("normalization", "raw")
        return replace(
            self, checkpoint=None, model=model, source=source, normalization=normalization
        )

    def check_names(self) -> None:
        """Refuse mistyped names of corpora, presets and devices before anything is loaded.

        Raises:
            UserError: an unknown name; the message lists the choices.
        """
        source, target = self.corpora()
        for name in filter(None, (source, target)):
            check_name(name)
        if self.preset is not None:
            check_preset(self.preset)
        check_device(self.device)
