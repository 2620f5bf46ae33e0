"""A tiny Llama as a GGUF file, as llama.cpp writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..unit.models.architectures import SHAPE, random_model, tokenizer


def llama() -> Any:
    """Return the model that the file holds; its rows are as long as blocks are."""
    return random_model("Llama", intermediate_size=64)


def write_gguf(
    path: Path, kind: str = "F32", *, arch: str = "llama", way: str = "gpt-2", **values: Any
) -> Path:
    """Write the weights of :func:`llama` in numbers or blocks of a ``kind``, a ``way`` to cut
    texts, and ``values``.
    """
    import gguf

    model, pieces = llama(), tokenizer()
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("tiny")
    for name, value in {
        "block_count": SHAPE["num_hidden_layers"],
        "context_length": SHAPE["max_position_embeddings"],
        "embedding_length": SHAPE["hidden_size"], "feed_forward_length": 64,
        "vocab_size": SHAPE["vocab_size"],
        "attention.head_count": SHAPE["num_attention_heads"],
        "attention.head_count_kv": SHAPE["num_key_value_heads"],
        "rope.dimension_count": 8,
    }.items():  # fmt: skip
        writer.add_uint32(f"{arch}.{name}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", model.config.rms_norm_eps)
    for name, value in values.items():
        writer.add_uint32(name.replace("__", "."), value)
    tokens = pieces.convert_ids_to_tokens(range(len(pieces)))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(way)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if index < 3 else 1 for index in range(len(tokens))])
    writer.add_token_merges(["t h", "th e", "Ġ the", "Ġ a", "i n", "Ġ f"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, SHAPE["num_hidden_layers"])
    for name, tensor in model.state_dict().items():
        weight = tensor.numpy()
        # llama.cpp turns numbers by pairs that stand beside each other
        if "q_proj" in name or "k_proj" in name:
            heads = SHAPE["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            weight = (
                weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
            )
        stored = gguf.GGMLQuantizationType[kind if weight.ndim > 1 else "F32"]
        data = gguf.quants.quantize(np.ascontiguousarray(weight), stored)
        writer.add_tensor(names.get_name(name, (".weight",)), data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
