"""Files of llama.cpp (GGUF): checked before any model is built, and read once, by
``transformers``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from hebblm.errors import UserError
from hebblm.models.huggingface.probe import line
from hebblm.runtime.extras import install
from hebblm.runtime.progress import log

GPT2 = (
    "gpt-2",
    "gpt2",
    "phi-2",
    "mpt",
    "olmo",
    "jais",
    "trillion",
    "exaone4",
    "roberta-bpe",
    "gigachat",
)
DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
"""Ways of llama.cpp to split a text before its pieces are found: GPT-2's, and the same with digits
split off first.
"""
VALUES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Types of weights that are not in blocks."""
_ALONE = RLock()  # what is changed in other modules while a file is read


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A file whose header was read."""

    path: Path
    tensors: int  # how many it has
    dtype: str  # of its weights; that of blocks of a few bits once they are unpacked

    def tokenizer(self) -> Any:
        """Its tokenizer, which splits a text like the model's own even if ``transformers`` would
        not.
        """
        from tokenizers import pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        from transformers.integrations.gguf.gguf_tokenizer_mapping import (
            GGUF_PRE_TOKENIZER_SPLITS,
            get_gguf_tokenizer,
        )

        _, described, _ = get_gguf_tokenizer(str(self.path))
        tokenizer = PreTrainedTokenizerFast.from_pretrained(
            str(self.path.parent), gguf_file=self.path.name
        )
        way = described.get("pre_tokenizer_type")
        if described.get("tokenizer_type") != "gpt2" or way in (*GGUF_PRE_TOKENIZER_SPLITS, *GPT2):
            return tokenizer
        if way in DIGITS:
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
        else:
            log(
                f"{self.path} splits texts in a way ({way}) that transformers does not know, so "
                "GPT-2's way is used: "
                "its pieces may differ from its training; hebblm.load((model, tokenizer)) takes "
                "its own tokenizer"
            )
        return tokenizer


@contextmanager
def opened(path: Path) -> Iterator[GgufFile]:
    """Check a file; while the block runs, its header is not read again."""
    try:
        import gguf as package
        from transformers import modeling_gguf_pytorch_utils
        from transformers.integrations.gguf.dequant import GGML_NAME
        from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS
        from transformers.integrations.gguf.reader import read_gguf_metadata
    except ImportError as error:
        raise UserError(f"GGUF files need more to be installed: {install('gguf')}") from error
    loading: Any = modeling_gguf_pytorch_utils
    gguf: Any = package
    _ALONE.acquire()
    kept = gguf.GGUFReader, gguf.get_tensor_name_map, loading.tqdm
    # transformers reads all of the header for the configuration and again for the weights, and
    # makes a table of names for each module: with a large vocabulary that takes most of the time.
    gguf.GGUFReader, gguf.get_tensor_name_map = functools.cache(kept[0]), functools.cache(kept[1])
    loading.tqdm = lambda tensors, **_: tensors
    try:
        try:
            # Of the two readers this one ends at once where a damaged count is beyond the file.
            metadata, _ = read_gguf_metadata(str(path))
            tensors = gguf.GGUFReader(str(path)).tensors
        except Exception as error:  # of many kinds, all of them of the file
            raise UserError(
                f"{path} is cut short, damaged, or not a GGUF file ({line(error)}); download it "
                "again"
            ) from error
        if (parts := metadata.get("split.count", 0)) > 1:
            raise UserError(
                f"{path} is one of {parts} parts; make one file of them with llama-gguf-split "
                "--merge"
            )
        types, architecture = (
            {tensor.tensor_type.name for tensor in tensors},
            metadata["general.architecture"],
        )
        unknown = (
            sorted(types - {*GGML_NAME.values(), *VALUES})
            if architecture in GGUF_CONFIG_ARCHS
            else []
        )
        if unknown:
            raise UserError(
                f"{path} has weights of type {unknown[0]}, which transformers does not read; use "
                "another file"
            )
        # Norms are in float32 next to other types. In half precision, processors compute bfloat16
        # faster, or neither.
        stored = next((VALUES[kind] for kind in ("BF16", "F16", "F32") if kind in types), "float32")
        # of damaged blocks; weights that are not finite are refused later
        with np.errstate(all="ignore"):
            yield GgufFile(path, len(tensors), stored if types <= {*VALUES} else "bfloat16")
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map, loading.tqdm = kept
        _ALONE.release()
