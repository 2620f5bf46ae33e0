"""Opening a scenario: its corpora, dictionary, model and stream, each checked before anything is
computed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from hebblm.errors import UserError
from hebblm.evaluation.documents import documents_of
from hebblm.evaluation.scenario import ModelAndText, Scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary, VocabularyPolicy
from hebblm.io.download import cache_dir
from hebblm.io.files import hash_of
from hebblm.models.base import TrainedModel
from hebblm.models.catalog import checkpoint_words, model_folder, trained_on
from hebblm.models.huggingface.open import load_and_open
from hebblm.models.training import obtain_model, open_model
from hebblm.runtime.progress import log
from hebblm.text import (
    Corpus,
    Dictionary,
    PreparedCorpus,
    encode_target,
    foreign_text,
    prepare,
    resolve,
)
from hebblm.text.binarize import measure_beginning, prepared_corpus
from hebblm.text.fitting import SAMPLE, fitting, tell_loss, warn_of_unknown
from hebblm.text.records import CHOOSE
from hebblm.text.sources import FileLines, LineSource, contiguous, own_text
from hebblm.text.subword_corpus import SubwordCorpus, encode_subwords
from hebblm.text.subwords import Subwords
from hebblm.text.tokenizers import Normalization, Tokenizer, WhitespaceTokenizer, normalize

ALL = "all"
"""Split of the user's own text when it is read from beginning to end."""
PARTS = {
    ALL: "the whole text",
    "valid": "the tenth of its lines before the last",
    "test": "the last tenth of its lines",
}


def open_scenario(
    config: ScenarioConfig,
    device: torch.device,
    provenance: dict[str, Any],
    opened_model: tuple[TrainedModel, Subwords] | None = None,
) -> Scenario:
    """Find, prepare and check corpora and model.

    Args:
        config: the options.
        device: device of all computation.
        provenance: written into a model that has to be trained.
        opened_model: a model of ``transformers`` that is open already, with its pieces.

    Raises:
        UserError: a file is missing or altered, or options or files do not fit together.
    """
    config = config.completed()
    source, target = config.corpora()
    counted = None
    if config.model is not None:
        folder = model_folder(Path(config.model))
        known = None if folder is None else trained_on(folder).get("name")
        counted = None if source == known else source
        name = source if source and not counted else Path(config.model).name
        same = source == target
    else:
        folder = config.checkpoint or Path()
        name = source or str(trained_on(folder).get("name", folder.name))
        same = name == target
    text = None if same else own_text(target, config.column)
    split = config.split or (ALL if text else "test")
    content = config.memory_content or ("both" if same else "test")
    config = dataclasses.replace(config, split=config.split or "test", memory_content=content)
    if config.model is not None:
        opened = _open_pieces(config, device, text, whole=split == ALL, opened_model=opened_model)
    else:
        opened = _open_words(config, device, text, provenance, whole=split == ALL)
    opened.counted = counted
    return Scenario(
        kind="intra-domain" if same else "cross-domain",
        source=name,
        target=target,
        config=config,
        device=device,
        split=split,
        part=PARTS[split] if text else f"the {split} split",
        documents=documents_of(opened.stream, _lines(config, text, split)),
        **{field.name: getattr(opened, field.name) for field in dataclasses.fields(opened)},
    )


def _open_words(
    config: ScenarioConfig,
    device: torch.device,
    own_source: FileLines | None,
    provenance: dict[str, Any],
    *,
    whole: bool,
) -> ModelAndText:
    """Open a model that reads words, and its text.

    ``own_source`` is the user's own text without splits, None for any other; with ``whole`` it is
    read to its end.
    """
    source, target = config.corpora()

    # 1) Dictionary and tokenizer: those of the model's own text.
    policy: Normalization = config.normalization or "raw"
    if config.normalization is None and {source, target} == {"wt2", "ptb"}:
        policy = "lower"  # the two differ in case more than in anything else
    column, remedy = config.source_column()
    train = None if source is None else prepared_corpus(source, policy, column, remedy=remedy)
    if train is not None:
        policy = train.meta.normalization
        dictionary = train.dictionary
        tokenizer = train.tokenizer()
    else:
        assert config.checkpoint is not None, "corpora() asks for one of them"
        dictionary, tokenizer = checkpoint_words(config.checkpoint)
        policy = trained_on(config.checkpoint).get("normalization", policy)

    # 2) The text to be read.
    if train is not None and source == target:
        read = train
    elif own_source is None:
        read = prepared_corpus(target, policy, config.column, train=False, remedy=CHOOSE)
    else:
        read = _text(config, target, own_source, policy, dictionary, tokenizer, whole=whole)

    # 3) The model, trained now if nothing else is there.
    if config.checkpoint is not None:
        model = open_model(config.checkpoint, dictionary.hash(), device)
    else:
        assert train is not None, "without a checkpoint there is a source"
        usual = "small" if train.meta.name in ("ptb", "wt2") else "tiny"
        preset = config.preset or usual
        model = obtain_model(train, preset, seed=config.seed, device=device, provenance=provenance)

    # 4) The stream, or its beginning.
    split = config.split or "test"
    stream = encode_target(dictionary, read, split, config.vocabulary)
    beginning = None
    total = len(stream)
    complete = config.max_tokens is None or config.max_tokens >= total
    if not complete:
        stream = dataclasses.replace(stream, ids=stream.ids[: config.max_tokens], lost=0)
        text = _corpus(config, own_source, read.tokenizer(), whole=whole)
        if text.prepared is None:
            beginning = measure_beginning(
                text, split, len(stream), policy, dictionary, read.dictionary
            )
            stream = dataclasses.replace(
                stream,
                lines=beginning.lines,
                words=beginning.words,
                bytes=beginning.bytes,
                lost=beginning.lost,
            )
    tell_loss(target.removeprefix("text:"), stream.lost, stream.bytes)
    # Words without a row in the model; those of a joined dictionary have one.
    beyond = stream.ids[stream.ids >= stream.source_size]
    warn_of_unknown(
        target,
        Counter(stream.symbols[index] for index in beyond.tolist()),
        len(stream),
        int((stream.ids == dictionary.unk_index).sum()),
        "`tokenizer` or `normalization`",
    )
    vocabulary: VocabularyPolicy = UnionVocabulary()
    if config.vocabulary == "open":
        vocabulary = OpenVocabulary(dictionary.unk_index, stream.vocabulary_size, config.unk_share)

    # 5) What a result says of both.
    hashes = {target: read.meta.provenance.get("sha256", {})}
    if train is not None and source is not None:
        hashes[source] = train.meta.provenance.get("sha256", {})
    return ModelAndText(
        model=model,
        dictionary=dictionary,
        train=train,
        stream=stream,
        vocabulary=vocabulary,
        normalization=policy,
        data_sha256=hashes,
        whole=complete,
        tokenizer=read.describe(),
        beginning=beginning,
        total=None if complete else total,
        column=read.meta.provenance.get("column"),
        splits=read.tokenizer(),
    )


def _open_pieces(
    config: ScenarioConfig,
    device: torch.device,
    own_source: FileLines | None,
    *,
    whole: bool,
    opened_model: tuple[TrainedModel, Subwords] | None,
) -> ModelAndText:
    """Open a model that reads pieces of words, and its text; ``own_source``, ``whole`` as for
    :func:`_open_words`.
    """
    source, target = config.corpora()
    model: TrainedModel
    if opened_model is None:
        assert config.model is not None, "a scenario of pieces has a model"
        learns = None
        if config.dynamic_parameters is not None:
            learns = config.dynamic_parameters.split(",")
        reading = {
            "context": config.context,
            "stride": config.stride,
            "learns": learns,
            "key": config.key,
        }
        model, tokenizer = load_and_open(config.model, reading, device=device, dtype=config.dtype)
    else:
        model, subwords = opened_model
        tokenizer = subwords.tokenizer
        for option in ("context", "stride", "dynamic_parameters", "dtype", "key", "device"):
            value = getattr(config, option)
            usual = getattr(ScenarioConfig, option)
            of_model = option == "device" and value == device.type
            if value not in (usual, None) and not of_model:
                word = "learns" if option == "dynamic_parameters" else option
                raise UserError(
                    f"{option} is set where a model is loaded: hebblm.load(..., {word}=...)"
                )
    rows = len(model.head.weight)
    policy: Normalization = config.normalization or "raw"
    train = None
    counts = None
    if source is None:
        log(
            "the training text is not known, so no word counts as new; name a text to count words "
            "in with "
            "source=CORPUS"
        )
    else:
        column, remedy = config.source_column()
        corpus = resolve(source, column, remedy=remedy)
        train = SubwordCorpus(corpus, Subwords(tokenizer, rows), policy)
        counts = train.piece_counts("train").tolist()
    subwords = Subwords(tokenizer, rows, counts, config.tokenizer)
    text = _corpus(config, own_source, WhitespaceTokenizer(), whole=whole)
    read = SubwordCorpus(text, subwords, policy)
    stream = encode_subwords(read, config.split or "test", config.max_tokens, train)
    hashes = {target: text.provenance.get("sha256", {})}
    if train is not None and source is not None:
        hashes[source] = train.corpus.provenance.get("sha256", {})
    complete = config.max_tokens is None or len(stream) < config.max_tokens
    return ModelAndText(
        model=model,
        dictionary=subwords,
        train=train,
        stream=stream,
        vocabulary=UnionVocabulary(),
        normalization=policy,
        data_sha256=hashes,
        whole=complete,
        tokenizer=read.describe(),
        column=text.provenance.get("column"),
    )


def _corpus(
    config: ScenarioConfig, own_source: FileLines | None, tokenizer: Tokenizer, *, whole: bool
) -> Corpus:
    """Return the corpus to be read, from the user's own text if there is one."""
    target = config.corpora()[1]
    if own_source is None:
        return resolve(target, config.column, remedy=CHOOSE)
    return foreign_text(target, own_source, tokenizer, whole=whole)


def _lines(config: ScenarioConfig, text: FileLines | None, split: str) -> LineSource | None:
    target = config.corpora()[1]
    if text is None:
        return resolve(target, config.column).sources.get(split)
    return text if split == ALL else contiguous(text, Path(target))[split]


def _text(
    config: ScenarioConfig,
    target: str,
    text: FileLines,
    policy: Normalization,
    dictionary: Dictionary,
    own_tokenizer: Tokenizer,
    *,
    whole: bool,
) -> PreparedCorpus:
    """Return the user's own text, tokenized like the model's text."""
    lines = (normalize(line, policy) for line in islice(text.lines(), SAMPLE))
    path = target.removeprefix("text:")
    tokenizer = fitting(lines, own_tokenizer, dictionary.__contains__, config.tokenizer, name=path)
    corpus = foreign_text(target, text, tokenizer, whole=whole)
    key = f"{text.sha256()[:16]}-{hash_of(tokenizer.spec())}-{policy}"
    if not whole:
        key += "-split"
    return prepare(corpus, normalization=policy, destdir=cache_dir() / "corpora" / f"text-{key}")
