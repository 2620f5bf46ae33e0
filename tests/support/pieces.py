"""Tokenizers of the kinds that people have, each trained on a few lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

LINES = [
    "the end of the war\n", "of the list of the end\n", "the list is long .\n", "là , the café\n",
    "the  list\n\n  is long\n", "end of the war\n", "of the of the of the\n",
]  # fmt: skip
BYTES = pre_tokenizers.ByteLevel.alphabet()


def _bytes(*, split: bool, trim: bool = False, normalizer: Any = None) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split)
    if not split:  # "of the" is one piece
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split("\n", "isolated"), made.pre_tokenizer]
        )
    if normalizer is not None:
        made.normalizer = normalizer
    made.decoder = decoders.ByteLevel()
    if trim:
        made.post_processor = processors.ByteLevel(trim_offsets=True)
    made.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=330, initial_alphabet=BYTES, show_progress=False)
    )
    return made


def _wordpiece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=80, special_tokens=["[UNK]"], show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    return made


def _byte_fallback() -> Tokenizer:
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, limit_alphabet=12, show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    return made


def _unigram(normalizer: Any = None) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    if normalizer is not None:
        made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=40, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    return made


def words_alone() -> Tokenizer:
    known = {"<unk>": 0, "the": 1, "list": 2, "is": 3}
    made = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": lambda: _bytes(split=True),
    "byte-level, offsets trimmed": lambda: _bytes(split=True, trim=True),
    "byte-level, not split at spaces": lambda: _bytes(split=False),
    "NFC": lambda: _bytes(split=True, normalizer=normalizers.NFC()),
    "lower case": lambda: _bytes(split=True, normalizer=normalizers.Lowercase()),
    "WordPiece": _wordpiece,
    "byte fallback": _byte_fallback,
    "unigram": _unigram,
    "NFKC": lambda: _unigram(normalizers.NFKC()),
    "line breaks dropped": lambda: _unigram(
        normalizers.Sequence([normalizers.Replace("\n", ""), normalizers.NFKC()])
    ),
    "words": words_alone,
}


@cache
def tokenizer_of(kind: str) -> Any:
    """Return a tokenizer of transformers of a kind, with a beginning of text."""
    return PreTrainedTokenizerFast(
        tokenizer_object=KINDS[kind](), bos_token="<s>", eos_token="</s>",
        unk_token="[UNK]" if kind == "WordPiece" else "<unk>",
    )  # fmt: skip
