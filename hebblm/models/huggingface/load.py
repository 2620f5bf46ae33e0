"""Loading a causal language model and its tokenizer from the hub or a folder, from safetensors
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from hebblm.errors import UserError
from hebblm.io.download import checked, quiet_hub
from hebblm.io.files import lack, read_json
from hebblm.models.catalog import is_gguf
from hebblm.models.huggingface import gguf, unpacked
from hebblm.models.huggingface.adapter import PeftAdapter, find_adapter, merged
from hebblm.models.huggingface.probe import READS, check_kind, line
from hebblm.models.pretrained import PRETRAINED, obtain
from hebblm.runtime.extras import install
from hebblm.runtime.progress import log

LOCATION = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "revision",
    "subfolder",
    "token",
)
"""Options for the place of a model, which its tokenizer shares."""
DTYPES = ("auto", "float32", "bfloat16", "float16")
KEPT = "bfloat16"  # type of unpacked weights that are kept
OPENED = "open model and tokenizer yourself, and give hebblm.load((model, tokenizer))"
CONVERT = (
    "convert them in a place that you trust: AutoModelForCausalLM.from_pretrained(..., "
    "use_safetensors=False)"
    ".save_pretrained(FOLDER)"
)


class Loaded(NamedTuple):
    """A loaded model."""

    model: Any
    tokenizer: Any
    origin: str  # hub, folder, gguf or the package that it came in
    file_sha256: str = ""  # of a GGUF file


def load_causal(
    name: str | Path, *, device: torch.device, dtype: str = "auto", **options: Any
) -> Loaded:
    """Load a causal language model and its tokenizer.

    Args:
        name: hub id, folder, GGUF file or one of ``PRETRAINED``.
        device: device of the model, unless ``options`` have a ``device_map``.
        dtype: type of the weights: auto (as they are stored, but float32 for float16 on a CPU,
            which has no arithmetic of that type: products would be slow, and gradients overflow;
            bfloat16 for the blocks of a GGUF file), float32, bfloat16 or float16.
        options: passed to ``AutoModelForCausalLM.from_pretrained``, e.g. ``device_map``,
            ``quantization_config`` or ``gguf_file`` (of that folder or hub id). Options for the
            place of a model, such as ``token``, ``revision`` or ``subfolder``, go to the tokenizer
            as well.
    """
    _check_options(dtype, options)
    location = {key: options[key] for key in LOCATION if key in options}
    known, origin = PRETRAINED.get(str(name)), "gguf"
    if known is not None:
        name, origin = obtain(known)
    if (file := options.pop("gguf_file", None)) is not None:
        from transformers.utils.hub import cached_file

        with _in_one_line(f"{file} of {name}"), quiet_hub():
            name = Path(str(cached_file(str(name), str(file), **location)))
    if is_gguf(Path(name)):
        digest = checked(Path(name), None if known is None else known.file_sha256, required=True)
        others = {key: value for key, value in options.items() if key not in LOCATION}
        if known is None or others or dtype not in ("auto", KEPT):
            return Loaded(*_load_gguf(Path(name), device, dtype, others), origin, digest)
        return Loaded(*_load_kept(Path(name), device, digest), origin, digest)
    folder = Path(name)
    if not folder.is_dir() and (
        folder.is_absolute() or str(name).startswith((".", "~")) or len(folder.parts) > 2
    ):
        raise UserError(
            f"{name} is not a folder; name a folder of save_pretrained, or a model of the hub as "
            "OWNER/NAME"
        )
    with _in_one_line(str(name)), quiet_hub(), _quiet():
        adapter = find_adapter(str(name), location)
    if adapter is None:
        model = _load_model(str(name), location, device, dtype, options)
    else:
        model = _with_adapter(adapter, location, device, dtype, options)
    if adapter is None or adapter.tokenizer:
        tokenizer = _load_tokenizer(str(name), location)
    else:
        tokenizer = _load_tokenizer(*_base(adapter, location))
    return Loaded(model, tokenizer, "folder" if folder.is_dir() else "hub")


def _check_options(dtype: str, options: Mapping[str, Any]) -> None:
    """Refuse options that would run code of a model, and a missing installation of transformers."""
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} must be one of {', '.join(DTYPES)}")
    if options.get("use_safetensors") is False:
        raise UserError(
            "use_safetensors = False: pickled weights could run anything when they are opened; "
            "leave it out"
        )
    if options.get("trust_remote_code"):
        raise UserError(
            "trust_remote_code = True: code from a model's folder is never run; give "
            "hebblm.load((model, tokenizer))"
        )
    try:
        import transformers  # noqa: F401 - whether it is installed
    except ImportError as error:
        raise UserError(
            f"models of transformers need more to be installed: {install('hf')}"
        ) from error


def _load_tokenizer(name: str, location: Mapping[str, Any]) -> Any:
    """Load the tokenizer of a model, and try it."""
    from transformers import AutoTokenizer

    try:
        with _in_one_line(f"the tokenizer of {name}"), quiet_hub():
            tokenizer = AutoTokenizer.from_pretrained(name, **location, trust_remote_code=False)
            tokenizer("a")  # some values are looked at only now
    except UserError as error:
        if OPENED in str(error):
            raise
        raise UserError(f"{error}; {OPENED}") from error
    return tokenizer


def _load_model(
    name: str,
    location: Mapping[str, Any],
    device: torch.device,
    dtype: str,
    options: Mapping[str, Any],
) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Path(name)
    loaded: Any
    with _in_one_line(name), quiet_hub(), _quiet():
        if folder.is_dir():
            _check_stored(folder / location.get("subfolder", ""))
        # None would ask
        config = AutoConfig.from_pretrained(name, **location, trust_remote_code=False)
        _check_causal(name, config)
        if folder.is_dir():
            _check_layers(folder / location.get("subfolder", ""), config)
        loaded = AutoModelForCausalLM.from_pretrained(
            name,
            **{**options, "dtype": dtype, "use_safetensors": True, "trust_remote_code": False},
            output_loading_info=True,
        )
    return _placed(name, config, loaded, device, dtype, "device_map" in options)


def _load_gguf(
    path: Path, device: torch.device, dtype: str, options: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Load the model of a GGUF file, with its blocks unpacked, and its tokenizer."""
    if "quantization_config" in options:
        raise UserError(
            f"quantization_config: the weights of {path} are unpacked when they are read; leave it "
            "out"
        )
    loaded: Any
    with _in_one_line(str(path)), gguf.opened(path) as file, _quiet():
        from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

        place = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        config = AutoConfig.from_pretrained(**place)
        _check_causal(str(path), config)
        if (layers := getattr(config.get_text_config(), "num_hidden_layers", 0)) > file.tensors:
            raise UserError(
                f"{path} has {file.tensors:,} weights, too few for {layers:,} layers; download it "
                "again"
            )
        loaded = AutoModelForCausalLM.from_pretrained(
            **{
                **options,
                **place,
                "config": config,
                "dtype": getattr(torch, file.dtype if dtype == "auto" else dtype),
            },
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
        )
    model = _placed(str(path), config, loaded, device, dtype, "device_map" in options)
    with _in_one_line(f"the tokenizer of {path}"), _quiet():
        tokenizer = file.tokenizer()
        tokenizer("a")
    return model, tokenizer


def _load_kept(path: Path, device: torch.device, digest: str) -> tuple[Any, Any]:
    """Load a model from its unpacked weights; without them unpack the GGUF file, and keep them for
    the next time.
    """
    from transformers import AutoTokenizer

    folder = unpacked.folder_of(path)
    if unpacked.is_whole(folder, digest):
        model = _load_model(str(folder), {}, device, KEPT, {})
        with _in_one_line(f"the tokenizer of {folder}"):
            return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model, tokenizer = _load_gguf(path, device, KEPT, {})
    try:
        with _quiet():
            unpacked.keep(folder, digest, model, tokenizer)
    except (
        UserError
    ) as error:  # of a full disk, or a cache that others own: the model is there all the same
        log(f"{error}; until then each start unpacks the weights again")
    return model, tokenizer


def _check_causal(name: str, config: Any) -> None:
    """Refuse a model if its configuration does not say that it predicts the next token."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = _kind_of(config)
    check_kind(kind, config, f"cannot load {name}: ")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"cannot load {name}: {kind} is not a causal language model for transformers; {READS}"
        )


def _placed(
    name: str, config: Any, loaded: tuple[Any, Any], device: torch.device, dtype: str, mapped: bool
) -> Any:
    """Put a model on its device, unless it was ``mapped``; refuse it if the report of its loading
    lacks weights.
    """
    (model, report), kind = loaded, _kind_of(config)
    if missing := sorted(report["missing_keys"]):
        if (built := type(model).__name__) != kind:
            raise UserError(
                f"cannot load {name}: {kind} lacks {_listed(missing)} of {built}, which would be "
                f"random; {READS}"
            )
        raise UserError(
            f"cannot load {name}: it lacks {_listed(missing)}, which would be random: "
            "configuration and weights do not fit; download it again"
        )
    if unexpected := sorted(report["unexpected_keys"]):
        log(f"{name} holds {_listed(unexpected)}, which its configuration does not use: left out")
    if not mapped:
        half = dtype == "auto" and device.type == "cpu" and model.dtype == torch.float16
        torch.nn.Module.to(model, device, torch.float32 if half else None)
    return model


def _with_adapter(
    adapter: PeftAdapter,
    location: Mapping[str, Any],
    device: torch.device,
    dtype: str,
    options: Mapping[str, Any],
) -> Any:
    """Load the base model of an adapter, with the adapter merged into its weights."""
    name, base_location = _base(adapter, location)
    with _in_one_line(f"{adapter.name}, an adapter"), quiet_hub(), _quiet():
        if find_adapter(name, base_location) is not None:
            raise UserError(
                f"the base of {adapter.name} is {name}, an adapter as well; merge that one with "
                "merge_and_unload, and "
                "save the model"
            )
    others = {key: value for key, value in options.items() if key not in LOCATION}
    model = _load_model(name, base_location, device, dtype, {**others, **base_location})
    with _in_one_line(f"{adapter.name}, an adapter"), _quiet():
        return merged(model, adapter)


def _base(adapter: PeftAdapter, location: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of an adapter's base model, and the options for its place."""
    base_location = {
        key: value for key, value in location.items() if key not in ("revision", "subfolder")
    }
    return adapter.base, base_location if adapter.revision is None else {
        **base_location,
        "revision": adapter.revision,
    }


def _kind_of(config: Any) -> str:
    """Return the class name that a model was saved from, or its architecture if that is not
    known.
    """
    names = config.architectures
    return (
        names[0]
        if isinstance(names, list) and names and isinstance(names[0], str)
        else str(config.model_type)
    )


def _listed(names: list[str]) -> str:
    return f"{len(names):,} weights ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})"


def _check_stored(folder: Path) -> None:
    """Refuse a folder without weights, or with pickled weights only."""
    files = list(folder.glob("*.safetensors"))
    for path in files:
        if not path.is_file():  # a pipe would be waited for
            raise UserError(f"{path} {lack(path)}; download the folder again")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weights = read_json(index).get("weight_map", {})
        if missing := sorted(set(weights.values()) - {path.name for path in files}):
            raise UserError(
                f"{folder} lacks {missing[0]}, which {index.name} names; download the folder again"
            )
    if files:
        return
    pickled = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
    if pickled:
        raise UserError(
            f"{folder / pickled[0]} is pickled, and could run anything when it is opened; {CONVERT}"
        )
    raise UserError(
        f"{folder} has no weights (*.safetensors); save the model there with save_pretrained"
    )


def _check_layers(folder: Path, config: Any) -> None:
    """Refuse a folder with fewer weights than its config.json has layers: building them could take
    forever.
    """
    layers, weights = getattr(config.get_text_config(), "num_hidden_layers", 0), 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as opened:
            weights += len(opened.keys())
    if layers > weights:
        raise UserError(
            f"num_hidden_layers = {layers} of {folder / 'config.json'} is more than the "
            f"{weights:,} weights there: "
            "they do not fit; download the folder again"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the bar and the report of loading weights."""
    from transformers import utils

    transformers_logging: Any = utils.logging
    shown, verbosity = (
        transformers_logging.is_progress_bar_enabled(),
        transformers_logging.get_verbosity(),
    )
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if shown:
            transformers_logging.enable_progress_bar()


@contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    """Turn an error of ``transformers`` into one line."""
    try:
        yield
    except UserError:
        raise
    except (
        Exception
    ) as error:  # transformers, hub and safetensors raise many kinds; all of them are of the input
        raise UserError(f"cannot load {name}: {_fault(error)[:300]}") from error


def _fault(error: Exception) -> str:
    """Return the fault of a model, and a remedy, from an error of its library."""
    fault = _first_line(error)
    if "trust_remote_code" in str(error):
        return f"it needs code of its own, which hebblm never runs; {OPENED}"
    if type(error).__name__ == "SafetensorError":
        return f"its weights are truncated or corrupt ({fault}); download them again"
    if "instantiate the backend tokenizer" in fault:
        return "no fast tokenizer found; save it there with save_pretrained"
    if isinstance(error, KeyError):
        return f"it is damaged, {fault} is missing; download it again"
    if isinstance(error, AttributeError | TypeError | IndexError | ArithmeticError):
        return f"a value in its files, or an option, is wrong ({line(error)})"
    if "safetensors" in str(error) and "pickle" not in fault:
        return f"it has no safetensors weights; {CONVERT}"
    if any(words in fault.lower() for words in ("not a local folder", "connect", "offline")):
        return "there is no such folder, and the hub has none of that name or cannot be reached"
    return fault


def _first_line(error: Exception) -> str:
    """Return the line of an error that says what is wrong, or its type if it has no text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0].endswith(":"):  # the next line says what
        return " ".join(lines[:2])
    return lines[0]
