"""Opening a scenario for a model that reads pieces of words."""

from __future__ import annotations

import torch

from hebblm.errors import UserError
from hebblm.evaluation.scenario import ModelAndText
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.models.base import TrainedModel
from hebblm.models.huggingface.open import load_and_open
from hebblm.progress import say
from hebblm.text import foreign_text, resolve
from hebblm.text.records import CHOOSE
from hebblm.text.sources import FileLines
from hebblm.text.subword_corpus import SubwordCorpus, encode_subwords
from hebblm.text.subwords import Subwords
from hebblm.text.tokenizers import Normalization, WhitespaceTokenizer


def open_subwords(
    config: ScenarioConfig,
    device: torch.device,
    own: FileLines | None,
    *,
    whole: bool,
    held: tuple[TrainedModel, Subwords] | None,
) -> ModelAndText:
    """Open a model that reads pieces of words, and its text.

    Args:
        config: what is asked for, completed.
        device: where to compute.
        own: the text where it is the user's own and has no splits; None for any other.
        whole: whether such a text is read from beginning to end.
        held: a model that is open already, with its pieces.

    Raises:
        UserError: anything missing, altered, or not fitting together.
    """
    source, target = config.corpora()
    model: TrainedModel
    if held is None:
        assert config.model is not None, "a scenario of pieces has a model"
        learns = config.dynamic_parameters
        reading = {
            "context": config.context,
            "stride": config.stride,
            "learns": None if learns is None else learns.split(","),
            "key": config.key,
        }
        model, tokenizer = load_and_open(config.model, reading, device=device, dtype=config.dtype)
    else:
        model, tokenizer = held[0], held[1].tokenizer
        for option in ("context", "stride", "dynamic_parameters", "dtype", "key", "device"):
            kept = (getattr(ScenarioConfig, option), device.type if option == "device" else None)
            if getattr(config, option) not in kept:
                word = "learns" if option == "dynamic_parameters" else option
                raise UserError(f"{option} is set where a model is loaded: hebblm.load(..., {word}=...)")
    rows = len(model.head.weight)
    policy: Normalization = config.normalization or "raw"
    plain = Subwords(tokenizer, rows)
    column, remedy = config.source_column()
    train = None if source is None else SubwordCorpus(resolve(source, column, remedy=remedy), plain, policy)
    if train is None:
        say("the training text is not known, so no word counts as new; --source CORPUS names a text to count words in")
        subwords = Subwords(tokenizer, rows, None, config.tokenizer)
    else:
        subwords = Subwords(tokenizer, rows, train.piece_counts("train").tolist(), config.tokenizer)
    text = (
        foreign_text(target, own, WhitespaceTokenizer(), whole=whole)
        if own
        else resolve(target, config.column, remedy=CHOOSE)
    )
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
