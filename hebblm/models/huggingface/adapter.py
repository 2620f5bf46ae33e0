"""Adapters of ``peft``, such as LoRA: found in a folder or on the hub, and merged into their base
model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from hebblm.errors import UserError
from hebblm.io.files import lack, read_json
from hebblm.models.catalog import ADAPTER_CONFIG, HUB_ID
from hebblm.runtime.extras import install

WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
TOKENIZER = "tokenizer_config.json"
MERGEABLE = ("LORA", "ADALORA", "LOHA", "LOKR", "OFT", "HRA", "VERA", "IA3", "LN_TUNING")
"""Kinds of adapters that ``peft`` merges exactly into the weights of their base model."""
MERGED = f"what can be merged is {', '.join(MERGEABLE)}"
SAVE = (
    "in a place that you trust, run: import torch; from safetensors.torch import save_file; "
    f"save_file(torch.load({PICKLED!r}, weights_only=True), {WEIGHTS!r})"
)


@dataclass(frozen=True, slots=True)
class PeftAdapter:
    """An adapter on disk."""

    name: str  # folder or hub id, as given
    folder: Path  # of its configuration and weights
    base: str  # folder or hub id of the model that it was trained for
    revision: str | None  # of the base on the hub, None for the newest
    tokenizer: bool  # whether it has its own


def find_adapter(name: str, location: Mapping[str, Any]) -> PeftAdapter | None:
    """Return the adapter in a folder or on the hub, None if there is no adapter; refuse one that
    cannot be merged.
    """
    from transformers.utils.hub import cached_file
    from transformers.utils.peft_utils import find_adapter_config_file

    path = find_adapter_config_file(name, **location)
    if path is None:
        return None
    tokenizer = None
    # where they lie on the hub, they are downloaded to the same folder
    for file in (WEIGHTS, TOKENIZER):
        tokenizer = cached_file(name, file, **location, _raise_exceptions_for_missing_entries=False)
    folder = Path(path).parent
    _check_weights(folder)
    document = read_json(Path(path))
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a JSON object; download the adapter again")
    _check_mergeable(path, document)
    base, revision = document.get("base_model_name_or_path"), document.get("revision")
    remedy = "write its folder or hub id as base_model_name_or_path there"
    if not isinstance(base, str) or not base:
        raise UserError(f"{path} names no base model; {remedy}")
    if not Path(base).is_dir():
        if (folder / base).is_dir():
            base = str(folder / base)
        elif not HUB_ID.fullmatch(base):
            raise UserError(f"{path}: the base {base!r} is not a folder here; {remedy}")
    return PeftAdapter(name, folder, base, revision, tokenizer is not None)


def merged(model: Any, adapter: PeftAdapter) -> Any:
    """Merge an adapter into the weights of its base; this changes the model."""
    from peft import PeftConfig, PeftModel

    _resize(model, adapter)
    folder, mapping = str(adapter.folder), getattr(model, "_checkpoint_conversion_mapping", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that are missing, and they are refused here
        adapted = PeftModel(model, PeftConfig.from_pretrained(folder))
        report = adapted.load_adapter(
            folder, "default", torch_device=str(model.device), key_mapping=mapping
        )
    if lacking := report.missing_keys:
        raise UserError(
            f"{adapter.folder / WEIGHTS} lacks {len(lacking):,} weights ({lacking[0]}, ...): it "
            f"does not fit {ADAPTER_CONFIG} next to it, or its base {adapter.base}; download it "
            "again"
        )
    return adapted.merge_and_unload(safe_merge=True)


def unwrapped(model: Any) -> Any:
    """Return the model in a ``PeftModel``, whose layers hold the adapter; any other model as it
    is.
    """
    config = getattr(model, "active_peft_config", None)
    if config is None:
        return model
    if config.is_prompt_learning:
        raise UserError(
            f"{type(model).__name__} adds {config.num_virtual_tokens} virtual tokens "
            f"({config.peft_type.value}) to "
            f"every text, and cannot be merged; {MERGED}"
        )
    return model.get_base_model()


def _check_weights(folder: Path) -> None:
    """Refuse a folder where an adapter's weights are missing or pickled, or that holds a model as
    well.
    """
    path = folder / WEIGHTS
    if others := sorted(file.name for file in folder.glob("*.safetensors") if file.name != WEIGHTS):
        raise UserError(
            f"{folder} holds a model ({others[0]}) and an adapter ({ADAPTER_CONFIG}); move one of "
            "them to another "
            "folder"
        )
    if not path.is_file():
        if (folder / PICKLED).exists():
            raise UserError(
                f"{folder / PICKLED} is pickled, and could run anything when it is opened; {SAVE}"
            )
        raise UserError(f"{path} {lack(path)}; save the adapter there with save_pretrained")


def _check_mergeable(path: str, document: Mapping[str, Any]) -> None:
    """Refuse an adapter that cannot be merged into a causal language model, by its
    configuration.
    """
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise UserError(f"{path} is an adapter; install peft: {install('peft')}") from error
    kind, task = document.get("peft_type"), document.get("task_type")
    if kind not in MERGEABLE:
        raise UserError(f"{path}: {kind} cannot be merged into the weights of a model; {MERGED}")
    if task not in ("CAUSAL_LM", None):
        raise UserError(f"{path}: the adapter is for {task}, and hebblm reads those for CAUSAL_LM")
    if document.get("alora_invocation_tokens"):
        raise UserError(
            f"{path}: an activated LoRA cannot be merged into the weights of a model; {MERGED}"
        )
    if document.get("megatron_config"):  # peft would import the module that megatron_core names
        raise UserError(f"{path}: megatron_config names code to run; leave it out")


def _resize(model: Any, adapter: PeftAdapter) -> None:
    """Give a model as many rows as the adapter has; one trained with added tokens has more."""
    names = {id(module): name for name, module in model.named_modules()}
    layers = [
        layer
        for layer in (model.get_input_embeddings(), model.get_output_embeddings())
        if layer is not None
    ]
    weights = {id(layer.weight): f"base_model.model.{names[id(layer)]}.weight" for layer in layers}
    with safe_open(adapter.folder / WEIGHTS, framework="pt") as opened:
        stored = {
            name: opened.get_slice(name).get_shape()[0]
            for name in set(opened.keys()) & set(weights.values())
        }
    rows = max(stored.values(), default=len(layers[0].weight))
    if rows == len(layers[0].weight):
        return
    if lacking := sorted(set(weights.values()) - set(stored)):
        raise UserError(
            f"{adapter.folder / WEIGHTS} has {rows:,} rows for tokens and no {lacking[0]}, which "
            "would be random; save "
            "the adapter with save_embedding_layers=True"
        )
    model.resize_token_embeddings(rows, mean_resizing=False)
