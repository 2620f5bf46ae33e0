"""From corpora to tokens, dictionary, binarised memory maps and evaluation streams."""

from __future__ import annotations

from hebblm.text.binarize import prepare
from hebblm.text.corpora import Corpus, foreign_text, resolve, text_corpus
from hebblm.text.dictionary import Dictionary
from hebblm.text.prepared import (
    EvaluationStream,
    PreparedCorpus,
    VocabularyPolicy,
    encode_target,
    load_prepared,
)
from hebblm.text.tokenizers import Normalization, Tokenizer, load_tokenizer, normalize

__all__ = [
    "Corpus",
    "Dictionary",
    "EvaluationStream",
    "Normalization",
    "PreparedCorpus",
    "Tokenizer",
    "VocabularyPolicy",
    "encode_target",
    "foreign_text",
    "load_prepared",
    "load_tokenizer",
    "normalize",
    "prepare",
    "resolve",
    "text_corpus",
]
