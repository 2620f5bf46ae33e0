"""``hebblm-train``: train a base model on a corpus; resumes after a kill."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from awd_lstm import ARCHITECTURES, read_config
from awd_lstm.document import CONFIG
from hebblm.cli.common import command
from hebblm.errors import UserError
from hebblm.io.provenance import command_line, provenance
from hebblm.models.catalog import cached_folder, check_configured, is_causal, model_folder
from hebblm.models.device import check_device, pick_device
from hebblm.models.presets import check_preset, get_preset
from hebblm.runtime.interrupts import GOES_ON, interrupted
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import opened
from hebblm.runtime.spelling import unknown
from hebblm.text.binarize import prepared_corpus
from hebblm.text.corpora import check_name

PROG = "hebblm-train"


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run.

    Args:
        corpus: ptb, wt2, pydoc, numpy, text:PATH, hf:ID[:CONFIG] or a folder of hebblm-preprocess.
        preset: tiny, small, medium or paper.
        arch: architecture to train instead of the preset's, e.g. awd_lstm_1200.
        normalization: raw or lower; a prepared folder has its own.
        finetune_from_model: model whose weights to begin with instead of random ones: a folder of
            hebblm-train or a shipped model, with the preset's shape and the corpus's words.
        epochs: number of passes over the corpus instead of the preset's.
        lr: learning rate instead of the preset's.
        precision: float32 or bfloat16 for the products of training, instead of the preset's; some
            processors multiply bfloat16 at twice float32's speed and others at half of it.
        output_path: folder of the model; by default in $HEBBLM_CACHE, where hebblm-eval finds it.
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1.
        seed: seed of weights, segment lengths and dropout.
    """

    corpus: str
    preset: str = "small"
    arch: str | None = None
    normalization: Literal["raw", "lower"] | None = None
    finetune_from_model: Path | None = None
    epochs: int | None = None
    lr: float | None = None
    precision: Literal["float32", "bfloat16"] | None = None
    output_path: Path | None = None
    device: str = "auto"
    seed: int = 1111


@command(PROG, TrainConfig, "hebblm-train --corpus ptb --preset small")
@interrupted(GOES_ON)
def main(config: TrainConfig, argv: list[str]) -> int:
    """Train an AWD-LSTM base model; run the same command again to go on after an interruption."""
    check_device(config.device)
    check_preset(config.preset)
    check_name(config.corpus)
    if config.arch is not None and config.arch not in ARCHITECTURES:
        raise unknown("arch", config.arch, ARCHITECTURES, f"choose from {', '.join(ARCHITECTURES)}")
    if config.epochs is not None and config.epochs < 1:
        raise UserError(f"epochs = {config.epochs} must be at least 1")
    if config.lr is not None and not 0 < config.lr < math.inf:
        raise UserError(f"lr = {config.lr} must be positive")
    initial = _initial(config)
    device = pick_device(config.device)
    prepared = prepared_corpus(config.corpus, config.normalization)
    preset = get_preset(config.preset, prepared.meta.name, len(prepared.dictionary), config.seed)
    if config.arch is not None:
        preset = replace(preset, model=ARCHITECTURES[config.arch](len(prepared.dictionary)))
    asked = {
        "epochs": config.epochs,
        "lr": config.lr,
        "precision": config.precision,
        "recurrent": config.precision,
    }
    changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    preset = replace(preset, training=replace(preset.training, **changes))
    folder = config.output_path or cached_folder(prepared, preset)
    from awd_lstm.checkpoint import STATE

    # loads torch, and the checks above must not wait for that
    from hebblm.models.training import train_model

    done = (folder / CONFIG).exists() and not (folder / STATE).exists()
    with opened(config.device) as ranks:
        record = provenance(command_line(PROG, argv), device=str(device), seed=config.seed)
        train_model(
            prepared, preset, folder, device=device, provenance=record, initial=initial, ranks=ranks
        )
    training = read_config(folder).get("training", {})
    reached = (
        f"epochs 1 to {preset.training.epochs}, of which {training.get('epoch')} was best with "
        "validation perplexity "
        f"{training.get('valid_perplexity', math.nan):.2f}"
    )
    log(f"the training in {folder} is already done: {reached}" if done else f"model in {folder}")
    return 0


def _initial(config: TrainConfig) -> Path | None:
    """Return the folder of the model to begin with, None for random weights."""
    if config.finetune_from_model is None:
        return None
    if config.output_path is None:
        raise UserError("--finetune-from-model needs --output-path, the folder of the new model")
    folder = model_folder(config.finetune_from_model)
    if folder is None or is_causal(folder):
        raise UserError(
            f"--finetune-from-model {config.finetune_from_model} is not an AWD-LSTM; name a folder "
            "of hebblm-train"
        )
    check_configured(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())
