"""A scenario: a model, a text, and the policies of reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hebblm.adapt.context import Context
from hebblm.errors import UserError
from hebblm.evaluation.documents import Document, borders
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.scenario_config import ScenarioConfig as ScenarioConfig
from hebblm.evaluation.training_text import training_memory
from hebblm.evaluation.vocabulary import VocabularyPolicy
from hebblm.memory import AnyMemory, HybridMemory, ShardedMemory, build_memory
from hebblm.models.base import GradientBase, Ids, StreamBase, TrainedModel
from hebblm.models.catalog import training_corpus
from hebblm.models.dynamic import DynamicConfig
from hebblm.models.update import STREAM
from hebblm.online.layout import Layout
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.text import Dictionary, EvaluationStream, PreparedCorpus
from hebblm.text.binarize import Beginning
from hebblm.text.subword_corpus import SubwordCorpus
from hebblm.text.subwords import Subwords
from hebblm.text.tokenizers import Tokenizer


@dataclass(slots=True, kw_only=True)
class ModelAndText:
    """A model and the text that it reads."""

    model: TrainedModel
    dictionary: Dictionary | Subwords  # of the source
    train: PreparedCorpus | SubwordCorpus | None  # the source corpus, if its text is available
    stream: EvaluationStream  # the tokens to be scored
    vocabulary: VocabularyPolicy  # policy for the losses of unseen words
    normalization: str  # as resolved
    data_sha256: dict[str, Any]  # of the files read
    whole: bool  # whether the stream is the whole split
    tokenizer: Mapping[str, Any] = field(default_factory=dict)  # tokenizer of the target
    # Size of the stream's text, if its tokens are words and it is a part of the split whose lines
    # are available.
    beginning: Beginning | None = None
    # tokens of the whole split that the stream is a part of; None if not counted
    total: int | None = None
    column: str | None = None  # of records that holds the text, None if the text is not in records
    splits: Tokenizer | None = None  # how the text was split into words, None for pieces of them
    # the corpus that words are counted in if the user named it, not the training text
    counted: str | None = None


@dataclass(slots=True, kw_only=True)
class Scenario(ModelAndText):
    """An opened scenario."""

    kind: str  # intra-domain or cross-domain
    source: str  # name of the corpus
    target: str
    config: ScenarioConfig  # as asked for
    device: torch.device
    split: str = "test"  # test, valid, or all of the user's own text
    part: str = ""  # the same in words
    documents: Sequence[Document] = ()  # of the stream, found if it is read in several parts

    @property
    def counts_in(self) -> str:
        """Name of the source's text: the model's training text, or the one that the user named to
        count words in.
        """
        return self.counted or self.source

    @property
    def closed(self) -> bool:
        """Whether the model has a row for every token: its tokens are pieces of words."""
        return self.stream.by_word is not None

    @property
    def measured(self) -> bool:
        """Whether the stream's words and bytes are those of the text read."""
        return self.whole or self.closed or self.beginning is not None

    @property
    def training_tokenizer(self) -> Mapping[str, Any] | None:
        if self.train is None:
            return None
        return self.train.describe()

    def pieces(self) -> dict[str, Any]:
        """Record for a result: the scored pieces or, if tokens are words, the text of a part."""
        stream = self.stream
        record: dict[str, Any] = {}
        if not self.closed:
            record["spelled_bytes"] = int(stream.spelled.sum())
            if stream.lost:
                record["lost_bytes"] = stream.lost
                record["lost_of"] = stream.bytes
            if self.beginning is not None:
                record["text"] = self.beginning._asdict()
            return record
        record["pieces"] = len(stream)
        record["words_counted_in"] = None if self.train is None else self.counts_in
        if self.counted is not None:
            record["training_text"] = None
        record["bytes"] = stream.bytes
        record["spelled_bytes"] = int(stream.spelled.sum())
        record["lost_bytes"] = stream.lost
        return record

    def source_stream(self) -> EvaluationStream | None:
        """Return the source's own text of the same split as the target's, None if it is not
        available.
        """
        if self.train is None:
            return None
        return self.train.stream(self.config.split or "test")

    @property
    def novel_rows(self) -> int:
        """Rows that the head has from the start in addition to the model's own."""
        if self.config.vocabulary == "open":
            return 0
        return self.stream.vocabulary_size - self.stream.source_size

    def base(self, settings: Hyperparameters | None = None, *, streams: int = 1) -> GradientBase:
        """Return a fresh base of so many streams, which learns according to the settings; without
        them it is fixed.
        """
        return self.model.base(
            rows=self.novel_rows,
            init=self.config.new_rows,
            update=None if settings is None else settings.base,
            seed=self.config.seed,
            streams=streams,
        )

    @property
    def writes(self) -> bool:
        return self.config.memory_content != "train"

    def layout(self) -> Layout:
        config = self.config
        places = borders(self.stream, self.documents)
        return Layout.of(
            len(self.stream), config.streams, scope=config.memory_scope, borders=places
        )

    def memories(
        self, memory: AnyMemory, settings: Hyperparameters, streams: int
    ) -> list[AnyMemory]:
        """Return separate memories of some streams; all begin with the entries of ``memory``."""
        content = self.config.memory_content
        if content == "train":
            return [memory] * streams
        if content == "test":
            return [memory] + [self.empty_memory(settings) for _ in range(1, streams)]
        return [HybridMemory.over(memory) for _ in range(streams)]

    def memory(self, settings: Hyperparameters, ranks: Ranks = ALONE) -> AnyMemory:
        if self.config.memory_content == "test":
            written = self.empty_memory(settings)
        else:
            written = self._training_memory(settings, ranks)
        if ranks.size > 1:
            return ShardedMemory(written, ranks)
        return written

    def _training_memory(self, settings: Hyperparameters, ranks: Ranks) -> AnyMemory:
        ids = self.training_ids("use memory_content=test")
        if len(ids) - 1 > self.config.training_entries:
            log(
                f"the memory holds the last {self.config.training_entries:,} of {len(ids) - 1:,} "
                "training tokens; "
                "see training_entries"
            )
            ids = ids[-self.config.training_entries - 1 :]
        head = None
        if self.fixed_head(settings):
            head = self.base(settings).head
        return training_memory(
            self.model,
            ids,
            settings.memory,
            dictionary_hash=self.dictionary.hash(),
            head=head,
            ranks=ranks,
        )

    def count_training(self, contexts: Sequence[Context]) -> None:
        """Count the n-grams of the training text first."""
        ids = self.training_ids("use memory_content=test")[-self.config.training_entries - 1 :]
        for context in contexts:
            assert context.ngrams is not None
            context.ngrams.add_text(ids)
            context.ngrams.mark_base()

    def fixed_head(self, settings: Hyperparameters) -> bool:
        """Return whether the base's softmax layer stays fixed while the stream is read."""
        return settings.base.lr == 0 and self.config.vocabulary == "union" and not self.model.keyed

    def empty_memory(self, settings: Hyperparameters) -> AnyMemory:
        return build_memory(self.model.key_width, settings.memory, self.device)

    def training_ids(self, *otherwise: str) -> Ids:
        """Return the source's training stream (T,); a checkpoint with its own words names that text
        itself.
        """
        if self.train is not None:
            return self.train.tokens("train")
        try:
            if isinstance(self.dictionary, Subwords):
                raise UserError("it is not known")
            corpus = training_corpus(self.config.checkpoint, self.dictionary.hash())
        except UserError as error:
            remedy = " or ".join(("name it with source=CORPUS", *otherwise))
            raise UserError(
                f"the training text of {self.source} is needed, but {error}; {remedy}"
            ) from error
        self.data_sha256[self.source] = corpus.meta.provenance.get("sha256", {})
        return corpus.tokens("train")

    def check_statistics(self, config: DynamicConfig, *, tuned: bool = False) -> None:
        """Refuse dynamic evaluation without an available training text, before any other method has
        read the text.

        If it is ``tuned``, its rate must be one that can be tried: from the training text, or a
        number.
        """
        leave = "leave dynamic evaluation out of `methods`"
        number = "settings={'dynamic.rule': 'sgd', 'dynamic.lr': 0.01}"
        if tuned and config.rule == STREAM:
            raise UserError(
                f"dynamic.rule=stream finds its rate by itself, and has none to tune; {leave} or "
                f"{number}"
            )
        if config.needs_statistics and tuned:
            self.training_ids(leave, number)
        elif config.needs_statistics and config.rule != "auto":
            self.training_ids(leave, "settings={'dynamic.rule': 'stream'}")

    def context(
        self, base: StreamBase, memory: AnyMemory, window: int, *, streams: int = 1
    ) -> Context:
        """Return the shared state of all methods at the start of the streams that share it."""
        head = base.head
        rows = head.weight.shape[0]
        counts = torch.from_numpy(self.stream.train_counts[:rows].copy()).to(self.device)
        new = None
        if self.kind == "cross-domain" and not self.closed:
            new = torch.from_numpy(self.stream.new[:rows]).to(self.device)
        return Context(
            head,
            memory,
            k=self.config.k,
            train_counts=counts,
            new_classes=new,
            window=window,
            fixed=not base.trains_online
            and self.config.vocabulary == "union"
            and not self.model.keyed,
            streams=streams,
        )
