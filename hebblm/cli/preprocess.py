"""``hebblm-preprocess``: turn raw or tokenised text into a dictionary and binarised ids."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hebblm.cli.common import command, print_line
from hebblm.errors import UserError
from hebblm.text.binarize import prepare, prepared_corpus, refuse_foreign
from hebblm.text.corpora import Corpus, resolve, text_corpus
from hebblm.text.dictionary import Dictionary
from hebblm.text.prepared import PreparedCorpus
from hebblm.text.records import CHOOSE
from hebblm.text.tokenizers import (
    MODEL_FILE,
    MosesTokenizer,
    Normalization,
    SentencePieceTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    normalize,
)

PROG = "hebblm-preprocess"
MUCH_UNKNOWN = 0.1


@dataclass(frozen=True, slots=True)
class PreprocessConfig:
    """Options of preprocessing: the text, its splitting into tokens, and the output.

    Args:
        text: a file of text or of records (.jsonl, .json, .csv, .tsv, .parquet), also compressed
            (.gz, .zst, .xz), a folder of such files, - for standard input, or hf:ID[:CONFIG]; it is
            split 80/10/10 by lines, unless the folder has files named train, valid and test, such
            as train.txt.
        output_path: the folder to write, new or empty or an earlier result.
        column: column of records that holds the text; by default text, or the only column of
            strings.
        tokenizer: the way of splitting lines into tokens.
        normalization: the case policy.
        vocab_size: number of SentencePiece pieces.
        min_count: words seen less often in training become <unk> (not with sentencepiece).
        joined_dictionary: ptb, wt2, pydoc, numpy, text:PATH, hf:ID[:CONFIG] or a folder of
            hebblm-preprocess: the words of its dictionary get rows too, which a model learns not to
            expect (not with sentencepiece).
        train: name of the training file within the folder.
        valid: name of the validation file within the folder.
        test: name of the test file within the folder.
        lang: language of Moses' rules.
        seed: seed of SentencePiece's random training lines.
    """

    text: Path
    output_path: Path
    column: str | None = None
    tokenizer: Literal["whitespace", "moses", "sentencepiece"] = "whitespace"
    normalization: Normalization = "raw"
    vocab_size: int = 8000
    min_count: int = 1
    joined_dictionary: str | None = None
    train: str | None = None
    valid: str | None = None
    test: str | None = None
    lang: str = "en"
    seed: int = 0


def preprocess(config: PreprocessConfig) -> PreparedCorpus:
    """Read, tokenise and write as configured."""
    if config.vocab_size < 1:
        raise UserError(f"--vocab-size {config.vocab_size} must be at least 1")
    named = {"train": config.train, "valid": config.valid, "test": config.test}
    names = {split: name for split, name in named.items() if name is not None}
    refuse_foreign(config.output_path)
    joined = None
    if config.joined_dictionary is not None:
        if config.tokenizer == "sentencepiece":
            raise UserError(
                "--joined-dictionary does not go with pieces of words; use --tokenizer whitespace "
                "or moses"
            )
        joined = prepared_corpus(config.joined_dictionary, None).dictionary
    plain = _corpus(config, names)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = _tokenizer(config, plain, Path(scratch) / MODEL_FILE)
        return prepare(
            replace(plain, tokenizer=tokenizer),
            normalization=config.normalization,
            destdir=config.output_path,
            min_count=config.min_count,
            joined=joined,
        )


def _corpus(config: PreprocessConfig, names: dict[str, str]) -> Corpus:
    name = str(config.text)
    if not name.startswith("hf:"):
        return text_corpus(config.text, names, column=config.column)
    if names:
        raise UserError(
            f"{name} has splits of its own; leave {', '.join(f'--{split}' for split in names)} out"
        )
    return resolve(name, config.column, remedy=CHOOSE)


def _tokenizer(config: PreprocessConfig, plain: Corpus, model: Path) -> Tokenizer:
    """Return the chosen tokeniser, trained on the training split if it learns."""
    if config.tokenizer == "whitespace":
        return WhitespaceTokenizer()
    if config.tokenizer == "moses":
        return MosesTokenizer(config.lang)
    lines = (normalize(line, config.normalization) for line in plain.lines("train"))
    return SentencePieceTokenizer.train(
        lines, model, vocab_size=config.vocab_size, seed=config.seed
    )


def _unsplit(dictionary: Dictionary) -> str | None:
    """Return a frequent word that ends in a comma if many tokens do, which means untokenised text;
    else None.
    """
    counts = {
        symbol: int(count)
        for symbol, count in zip(dictionary.symbols, dictionary.counts, strict=True)
    }
    joined = {
        symbol: count for symbol, count in counts.items() if symbol.endswith(",") and symbol != ","
    }
    if sum(joined.values()) <= counts.get(",", 0):
        return None
    return max(joined, key=lambda symbol: joined[symbol], default=None)


@command(
    PROG,
    PreprocessConfig,
    "hebblm-preprocess --text novel.txt --tokenizer moses --output-path novel",
)
def main(config: PreprocessConfig, argv: list[str]) -> None:
    """Turn raw or tokenised UTF-8 text into a dictionary and binarised ids."""
    prepared = preprocess(config)
    meta = prepared.meta
    print_line(
        f"{prepared.folder}: {meta.vocabulary_size:,} symbols, {meta.normalization}, {meta.dtype}"
    )
    for name, split in meta.splits.items():
        literal = split.literal or 0
        unknown, rare = (100 * count / split.tokens for count in (literal, split.unknown - literal))
        much = name != "train" and rare > 100 * MUCH_UNKNOWN
        print_line(
            f"  {name}: {split.tokens:,} tokens, {split.lines:,} lines, {split.words:,} words, "
            f"{split.bytes:,} bytes, {unknown:.2f} % <unk> in the text, {rare:.2f} % outside the "
            "dictionary" + (" (much: see --tokenizer and --min-count)" if much else "")
        )
    if isinstance(prepared.tokenizer(), WhitespaceTokenizer) and (
        word := _unsplit(prepared.dictionary)
    ):
        print_line(f"warning: words include punctuation, such as {word!r}; try --tokenizer moses")


if __name__ == "__main__":
    sys.exit(main())
