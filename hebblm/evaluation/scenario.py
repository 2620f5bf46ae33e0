"""A scenario: which model meets which text, under which policies, with everything opened and checked."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from awd_lstm import read_config
from hebblm.adapt import Context
from hebblm.errors import UserError
from hebblm.evaluation.documents import Document, borders, documents_of
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.scenario_config import ScenarioConfig as ScenarioConfig
from hebblm.evaluation.streams import Layout
from hebblm.evaluation.subword_scenario import open_subwords
from hebblm.evaluation.training_memory import training_memory
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary, Vocabulary
from hebblm.files import hash_of, sha256
from hebblm.memory import AnyMemory, HybridMemory, build_memory
from hebblm.models.allocator import keep_freed_memory
from hebblm.models.base import Ids, LearningBase, StreamBase, TrainedModel
from hebblm.models.catalog import checkpoint_dictionary, trained_on
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.models.shipped import obtain_model, open_model
from hebblm.models.store import prepared_corpus
from hebblm.progress import say
from hebblm.text import (
    Dictionary,
    EvaluationStream,
    PreparedCorpus,
    encode_target,
    foreign_text,
    load_tokenizer,
    prepare,
    resolve,
)
from hebblm.text.beginning import Beginning, measure_beginning
from hebblm.text.download import cache_dir
from hebblm.text.fitting import fitting
from hebblm.text.normalize import Normalization
from hebblm.text.prepared import DICTIONARY_FILE
from hebblm.text.subword_corpus import SubwordCorpus, encode_subwords
from hebblm.text.subwords import Subwords

ALL = "all"
"""Split of a text of the user's own that is read from beginning to end."""
PARTS = {
    ALL: "the whole text",
    "valid": "the tenth of its lines before the last",
    "test": "the last tenth of its lines",
}
MUCH_UNKNOWN = 0.1


@dataclass(slots=True)
class Scenario:
    """An opened scenario.

    Args:
        kind: ``intra-domain`` or ``cross-domain``.
        source: name of the source corpus.
        target: name of the target corpus.
        model: the trained base.
        dictionary: of the source.
        train: the source corpus, where its text is at hand.
        stream: the tokens to be scored.
        vocabulary: how unseen words are charged.
        config: as asked for.
        normalization: as resolved.
        device: where to compute.
        data_sha256: of the files read.
        whole: whether the stream is the whole split.
        split: what was read: test, valid, or all of a text of the user's own.
        part: the same in words.
        tokenizer: specification of what split the target into tokens.
        beginning: how much text the stream is, where it is words and a part of the split whose lines are at hand.
        documents: that the stream is made of, found where it is read in several parts.
    """

    kind: str
    source: str
    target: str
    model: TrainedModel
    dictionary: Dictionary | Subwords
    train: PreparedCorpus | SubwordCorpus | None
    stream: EvaluationStream
    vocabulary: Vocabulary
    config: ScenarioConfig
    normalization: str
    device: torch.device
    data_sha256: dict[str, Any]
    whole: bool
    split: str = "test"
    part: str = ""
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    beginning: Beginning | None = None
    documents: Sequence[Document] = ()

    @property
    def closed(self) -> bool:
        """Whether every text is made of what the model has rows for: pieces of words."""
        return self.stream.by_word is not None

    @property
    def measured(self) -> bool:
        """Whether the stream's words and bytes are those of what was read."""
        return self.whole or self.closed or self.beginning is not None

    @property
    def training_tokenizer(self) -> Mapping[str, Any] | None:
        """What split the source's text into tokens, None where it is not at hand."""
        if isinstance(self.train, SubwordCorpus):
            return self.train.describe()
        return None if self.train is None else self.train.meta.tokenizer

    def pieces(self) -> dict[str, Any]:
        """Return what a result records of the pieces that were scored or, where tokens are words, of a part's text."""
        if not self.closed:
            return {} if self.beginning is None else {"text": self.beginning._asdict()}
        return {"pieces": len(self.stream), "words_counted_in": None if self.train is None else self.source}

    def source_stream(self) -> EvaluationStream | None:
        """Return the source's own text of the split that is read of the target, None where it is not at hand."""
        split = self.config.split or "test"
        if isinstance(self.train, SubwordCorpus):
            return encode_subwords(self.train, split, None, None)
        if self.train is None or isinstance(self.dictionary, Subwords):
            return None
        return encode_target(self.dictionary, self.train, split)

    @property
    def novel_rows(self) -> int:
        """Rows that the head has beyond the model's own from the start."""
        if self.config.vocabulary == "open":
            return 0
        return self.stream.vocabulary_size - self.stream.source_size

    def base(self, settings: Hyperparameters | None = None, *, streams: int = 1) -> LearningBase:
        """Return a fresh base of so many streams, which learns as the settings have it; not at all without any."""
        return self.model.base(
            rows=self.novel_rows,
            init=self.config.new_rows,
            update=None if settings is None else settings.base,
            seed=self.config.seed,
            streams=streams,
        )

    def layout(self) -> Layout:
        """Return the streams that the text is read in."""
        config = self.config
        places = borders(self.stream, self.documents)
        return Layout.of(len(self.stream), config.streams, scope=config.memory_scope, borders=places)

    def memories(self, memory: AnyMemory, settings: Hyperparameters) -> list[AnyMemory]:
        """Return the memory of each stream where each has its own; all begin with the entries of ``memory``."""
        streams, content = self.config.streams, self.config.memory_content
        if content == "train":
            return [memory] * streams
        if content == "test":
            return [memory, *(self.empty_memory(settings) for _ in range(1, streams))]
        return [HybridMemory.over(memory) for _ in range(streams)]

    def memory(self, settings: Hyperparameters) -> AnyMemory:
        """Return the memory as it is before the stream is read."""
        if self.config.memory_content == "test":
            return self.empty_memory(settings)
        ids = self.training_ids()
        if len(ids) - 1 > self.config.training_entries:
            say(
                f"the memory holds the last {self.config.training_entries:,} of {len(ids) - 1:,} training tokens; "
                "see --training-entries"
            )
            ids = ids[-self.config.training_entries - 1 :]
        return training_memory(
            self.model,
            ids,
            settings.memory,
            dictionary_hash=self.dictionary.hash(),
            head=self.base(settings).head if self.fixed_head(settings) else None,
        )

    def fixed_head(self, settings: Hyperparameters) -> bool:
        """Say whether the base's softmax layer stays as it is while the stream is read."""
        return settings.base.lr == 0 and self.config.vocabulary == "union" and not self.model.keyed

    def empty_memory(self, settings: Hyperparameters) -> AnyMemory:
        """Return a memory without entries."""
        return build_memory(self.model.key_width, settings.memory, self.device)

    def training_ids(self) -> Ids:
        """Return the source's training stream (T,).

        Raises:
            UserError: the model came as a checkpoint without its text.
        """
        if self.train is None:
            raise UserError(
                f"the training text of {self.source} is needed; name it with --source, or use --memory-content test "
                "and leave dynamic evaluation out, or --set dynamic.rule=sgd dynamic.lr=0.01"
            )
        return self.train.tokens("train")

    def context(self, base: StreamBase, memory: AnyMemory, window: int, *, streams: int = 1) -> Context:
        """Return the shared state of all methods at the start of the streams that share it."""
        head = base.head
        rows = head.weight.shape[0]
        counts = torch.from_numpy(self.stream.train_counts[:rows].copy()).to(self.device)
        new = None
        if self.kind == "cross-domain" and not self.closed:
            new = torch.arange(rows, device=self.device) >= self.stream.source_size
        return Context(
            head,
            memory,
            k=self.config.k,
            train_counts=counts,
            new_classes=new,
            window=window,
            fixed=not base.moving and self.config.vocabulary == "union" and not self.model.keyed,
            streams=streams,
        )


def open_scenario(
    config: ScenarioConfig,
    device: torch.device,
    provenance: dict[str, Any],
    held: tuple[HuggingFaceModel, Subwords] | None = None,
) -> Scenario:
    """Find, prepare and check corpora and model.

    Args:
        config: what is asked for.
        device: where to compute.
        provenance: written into a model that has to be trained.
        held: a model of ``transformers`` that is open already, with its pieces.

    Raises:
        UserError: anything missing, altered, or not fitting together.
    """
    keep_freed_memory()
    config = config.completed()
    if config.model is not None:
        return _of_subwords(config, device, held)
    source, target = config.corpora()
    policy = config.normalization or _default_normalization(source, target)
    train = None if source is None else prepared_corpus(source, policy)
    if train is not None:
        policy = train.meta.normalization
        dictionary = train.dictionary
    else:
        assert config.checkpoint is not None, "corpora() asks for one of them"
        dictionary, policy = _checkpoint_dictionary(config.checkpoint, policy)
    name = source or model_corpus(config.checkpoint or Path())
    file = _own_file(target) if name != target else None
    split = config.split or ("test" if file is None else ALL)
    config = dataclasses.replace(config, split=config.split or "test")
    if train is not None and source == target:
        read = train
    elif file is None:
        read = prepared_corpus(target, policy)
    else:
        read = _text(config, file, policy, train, dictionary, whole=split == ALL)
    if config.checkpoint is not None:
        model = open_model(config.checkpoint, dictionary.hash(), device)
    else:
        assert train is not None, "without a checkpoint there is a source"
        preset = config.preset or _default_preset(train)
        model = obtain_model(train, preset, seed=config.seed, device=device, provenance=provenance)
    stream = encode_target(dictionary, read, config.split or "test", config.vocabulary)
    whole, beginning = config.max_tokens is None or config.max_tokens >= len(stream), None
    if config.max_tokens is not None and not whole:
        stream = dataclasses.replace(stream, ids=stream.ids[: config.max_tokens])
        text = resolve(target) if file is None else foreign_text(file, read.tokenizer(), whole=split == ALL)
        if text.prepared is None:
            beginning = measure_beginning(
                text, config.split or "test", len(stream), policy, dictionary, read.dictionary
            )
            stream = dataclasses.replace(
                stream, lines=beginning.lines, words=beginning.words, bytes=beginning.bytes
            )
    _warn_of_unknown(stream, dictionary.unk_index, target)
    vocabulary: Vocabulary = UnionVocabulary()
    if config.vocabulary == "open":
        vocabulary = OpenVocabulary(dictionary.unk_index, stream.vocabulary_size, config.unk_share)
    kind = "intra-domain" if name == target else "cross-domain"
    if config.memory_content is None:
        config = dataclasses.replace(config, memory_content="both" if kind == "intra-domain" else "test")
    hashes = {target: read.meta.provenance.get("sha256", {})}
    if train is not None and source is not None:
        hashes[source] = train.meta.provenance.get("sha256", {})
    return Scenario(
        kind=kind,
        source=name,
        target=target,
        model=model,
        dictionary=dictionary,
        train=train,
        stream=stream,
        vocabulary=vocabulary,
        config=config,
        normalization=policy,
        device=device,
        data_sha256=hashes,
        whole=whole,
        split=split,
        part=_part(target, split),
        tokenizer=read.meta.tokenizer,
        beginning=beginning,
        documents=_documents(config, stream, target),
    )


def _of_subwords(
    config: ScenarioConfig, device: torch.device, held: tuple[HuggingFaceModel, Subwords] | None
) -> Scenario:
    """Return the scenario of a model that reads pieces of words."""
    source, target = config.corpora()
    file = _own_file(target) if source != target else None
    split = config.split or ("test" if file is None else ALL)
    kind = "intra-domain" if source == target else "cross-domain"
    content = config.memory_content or ("both" if kind == "intra-domain" else "test")
    config = dataclasses.replace(config, split=config.split or "test", memory_content=content)
    opened = open_subwords(config, device, file, config.split or "test", whole=split == ALL, held=held)
    return Scenario(
        kind=kind,
        source=source or Path(config.model or "").name,
        target=target,
        model=opened.model,
        dictionary=opened.subwords,
        train=opened.train,
        stream=opened.stream,
        vocabulary=UnionVocabulary(),
        config=config,
        normalization=config.normalization or "raw",
        device=device,
        data_sha256=opened.hashes,
        whole=config.max_tokens is None or len(opened.stream) < config.max_tokens,
        split=split,
        part=_part(target, split),
        tokenizer=opened.tokenizer,
        documents=_documents(config, opened.stream, target),
    )


def _documents(config: ScenarioConfig, stream: EvaluationStream, target: str) -> list[Document]:
    """Return the documents of what is read where it is read in several parts."""
    if config.streams == 1:
        return []
    source = None if _own_file(target) else resolve(target).sources.get(config.split or "test")
    return documents_of(stream, source)


def _own_file(target: str) -> Path | None:
    """Return the path of a target that is a single text of the user's own."""
    path = Path(target.removeprefix("text:"))
    return path if target.startswith("text:") and not path.is_dir() else None


def _part(target: str, split: str) -> str:
    """Return in words which part of a target is read."""
    return PARTS[split] if _own_file(target) else f"the {split} split"


def model_corpus(folder: Path) -> str:
    """Return the name of the corpus that a checkpoint was trained on."""
    corpus = read_config(folder).get("training", {}).get("corpus", {})
    return str(corpus.get("name", folder.name))


def _text(
    config: ScenarioConfig,
    file: Path,
    policy: Normalization,
    train: PreparedCorpus | None,
    dictionary: Dictionary,
    *,
    whole: bool,
) -> PreparedCorpus:
    """Return a text of the user's own, in tokens like those of the model's text."""
    if not file.is_file():
        raise UserError(f"{file} does not exist; name a UTF-8 text file")
    if train is not None:
        own = train.tokenizer()
    else:
        assert config.checkpoint is not None, "a target comes with a source or a checkpoint"
        own = load_tokenizer(
            trained_on(config.checkpoint).get("tokenizer", {"name": "whitespace"}), config.checkpoint
        )
    fit = fitting(file, own, dictionary, policy, config.tokenizer)
    if fit.reason:
        say(fit.reason)
    corpus = foreign_text(file, fit.tokenizer, whole=whole)
    key = f"{sha256(file)[:16]}-{hash_of(fit.tokenizer.spec())}-{policy}{'' if whole else '-split'}"
    return prepare(corpus, normalization=policy, destdir=cache_dir() / "corpora" / f"text-{key}")


def _warn_of_unknown(stream: EvaluationStream, unk: int, target: str) -> None:
    """Say so where much of the text lies outside the model's vocabulary, with the most frequent such words."""
    share = float(stream.oov.mean())
    if share <= MUCH_UNKNOWN:
        return
    words = [stream.symbols[index] for index, _ in Counter(stream.ids[stream.oov].tolist()).most_common(5)]
    say(
        f"warning: {100 * share:.1f} % of the tokens of {target} are outside the model's vocabulary, most often "
        f"{' '.join(words)}; besides, {100 * float((stream.ids == unk).mean()):.1f} % are <unk>. Is it tokenised and "
        "lower-cased like the model's text (--tokenizer, --normalization)?",
    )


def _checkpoint_dictionary(folder: Path, policy: Normalization) -> tuple[Dictionary, Normalization]:
    """Return the dictionary and normalisation that a checkpoint carries."""
    path = folder / DICTIONARY_FILE
    if not path.is_file():
        raise UserError(f"{folder} has no {DICTIONARY_FILE}; name the corpus it was trained on with --source")
    corpus = read_config(folder).get("training", {}).get("corpus", {})
    return checkpoint_dictionary(folder), corpus.get("normalization", policy)


def _default_normalization(source: str | None, target: str) -> Normalization:
    """Return lower for wt2-to-ptb, whose sides differ in case alone more than in anything else; raw otherwise."""
    return "lower" if {source, target} == {"wt2", "ptb"} else "raw"


def _default_preset(train: PreparedCorpus) -> str:
    """Return the preset that suits a corpus' size."""
    return "small" if train.meta.name in ("ptb", "wt2") else "tiny"
