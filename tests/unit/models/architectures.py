"""Random tiny models of transformers, one an architecture, and a tokenizer for all of them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm

TEXT = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n"
CONTEXT, STRIDE = 16, 6
SHAPE = {
    "vocab_size": 70, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": None,
}  # fmt: skip
GPT2 = {**SHAPE, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48}
MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
"moe_intermediate_size": 32,
       "shared_expert_intermediate_size": 32}  # fmt: skip
STATE = {"state_size": 8, "expand": 2, "conv_kernel": 4}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "GPT2": GPT2,
    "Llama": {},
    "Mistral": {"sliding_window": 8},
    "Qwen2": {},
    "Qwen3": {"head_dim": 8},
    "Gemma2": {"head_dim": 8, "sliding_window": 8, "final_logit_softcapping": 1.5},
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "GPTNeoX": {},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Phi": {},
    "Phi3": {"pad_token_id": 0},
    "Falcon": {},
    "Mamba": STATE,
    "Mamba2": {**STATE, "num_heads": 8, "head_dim": 8, "n_groups": 1},
    "Granite": {"logits_scaling": 4.0},
    "Olmo2": {},
    "StableLm": {},
    "Rwkv": {"context_length": 64, "attention_hidden_size": 32},
    "XGLM": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48},
    "BioGpt": {},
    "GPTJ": {**GPT2, "rotary_dim": 4},
    "CodeGen": {**GPT2, "rotary_dim": 4},
    "Persimmon": {},
    "Mixtral": {**MOE, "sliding_window": None},
    "Qwen2Moe": MOE,
    "Starcoder2": {},
    "GPTBigCode": GPT2,
    "SmolLM3": {"pad_token_id": 0},
    "Lfm2": {"block_ff_dim": 48},
    "GptOss": {**MOE, "head_dim": 8, "sliding_window": 8},
    "Cohere": {"logit_scale": 0.25},
}
# that go on token by token, or not at all, or are capped by another name
OTHERS: dict[str, dict[str, Any]] = {
    "Jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "num_experts": 2,
    "pad_token_id": 0},
    "Bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1,
    "mamba_chunk_size": 4,
              "attn_layer_indices": [1]},
    "xLSTM": {"hidden_size": 64, "embedding_dim": 64, "num_heads": 2, "num_blocks": 2,
    "chunk_size": 4,
              "qk_dim_factor": 1.0, "output_logit_soft_cap": 1.5},
}  # fmt: skip


def random_model(name: str, **values: Any) -> Any:
    """Return a random tiny model whose logits are large enough to tell scales and caps apart."""
    import transformers

    torch.manual_seed(0)
    own = {**ARCHITECTURES, **OTHERS}[name]
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **own, **values})
    config.pad_token_id = own.get("pad_token_id")
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.weight.normal_(0, 0.5)
    return model


@functools.cache
def tokenizer(*, begins: bool = False) -> Any:
    """Return a byte-level BPE of a few pieces; one that puts ``<s>`` before every text, or not."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHT.,", "Ġ", "Ċ"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "a"), ("i", "n"), ("Ġ", "f")]
    pieces = ["<pad>", "<s>", "</s>", *letters, *("".join(pair) for pair in merges)]
    made = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if begins:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def opened(name: str, *, begins: bool = False, **options: Any) -> hebblm.LanguageModel:
    """Return a random tiny model behind the front door, or skip the test where this transformers
    has no such one.
    """
    import transformers

    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    pieces = tokenizer(begins=begins)
    return hebblm.load(
        (random_model(name), pieces), **{"context": CONTEXT, "stride": STRIDE, **options}
    )


def saved(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    tokenizer().save_pretrained(folder)
    return folder


def changed(folder: Path, file: str, **values: Any) -> Path:
    """Change values of a saved model or adapter."""
    document = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**document, **values}))
    return folder
