"""Training of a base model on a prepared corpus, and finding one: shipped, trained before, or
trained now.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

import awd_lstm
from awd_lstm import AWDLSTM, Event, Trainer, load_checkpoint, read_config, training_seconds
from awd_lstm.checkpoint import STATE, WEIGHTS
from awd_lstm.document import CONFIG
from hebblm.errors import UserError, reason
from hebblm.io.files import sha256
from hebblm.io.locks import file_lock, remove_left
from hebblm.models.awd import AwdModel
from hebblm.models.catalog import cached_folder, missing_models, shipped_folder
from hebblm.models.device import keep_freed_memory
from hebblm.models.presets import Preset, get_preset
from hebblm.runtime.interrupts import handled
from hebblm.runtime.progress import bar, duration, log
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.text import PreparedCorpus
from hebblm.text.prepared import DICTIONARY_FILE


def open_model(
    folder: Path, dictionary_sha256: str, device: torch.device, origin: str = "checkpoint"
) -> AwdModel:
    """Open a checkpoint, which must have been trained with the given dictionary."""
    model = load_checkpoint(folder, dictionary_sha256=dictionary_sha256).to(device)
    if (folder / STATE).is_file():
        log(
            f"warning: the training of {folder} has not ended; these are its best weights so far; "
            "run the same "
            "hebblm-train command to continue"
        )
    return AwdModel(model, folder, origin, sha256(folder / WEIGHTS))


def obtain_model(
    prepared: PreparedCorpus,
    preset: str,
    *,
    seed: int,
    device: torch.device,
    provenance: dict[str, Any],
) -> AwdModel:
    """Return the shipped model of a preset and corpus, else the cached one, else train one there.

    Seed and provenance are those of a training run; a shipped model has its own.
    """
    recipe = get_preset(preset, prepared.meta.name, len(prepared.dictionary), seed)
    dictionary = prepared.meta.dictionary_hash
    shipped = shipped_folder(prepared, preset)
    if shipped is not None and read_config(shipped).get("dictionary_sha256") == dictionary:
        return open_model(shipped, dictionary, device, "shipped")
    folder = cached_folder(prepared, recipe)
    if not (folder / WEIGHTS).exists():
        name = f"{preset}-{prepared.meta.name}-{prepared.meta.normalization}"
        other = "; a checkout of the repository has one" if name in missing_models() else ""
        log(
            f"no {preset} model of {prepared.meta.name} ({prepared.meta.normalization}) yet: "
            f"training one, kept in {folder}{other}"
        )
    train_model(prepared, recipe, folder, device=device, provenance=provenance)
    return open_model(folder, dictionary, device, "trained")


def train_model(
    prepared: PreparedCorpus,
    preset: Preset,
    folder: Path,
    *,
    device: torch.device,
    provenance: dict[str, Any],
    initial: Path | None = None,
    ranks: Ranks = ALONE,
) -> AWDLSTM:
    """Train to the end, or finish the run that was interrupted in ``folder``, and return the best
    model.

    A folder whose run is finished is used as it is; one that holds another model is refused.

    Args:
        prepared: the corpus; its ``train`` and ``valid`` splits are read.
        preset: shape and schedule.
        folder: receives the checkpoint and, while training, the state of the run.
        device: device of the training.
        provenance: JSON object written into the checkpoint.
        initial: folder of a model whose weights the run begins with instead of random ones.
        ranks: the processes that divide the streams of a batch; all of them call this.
    """
    with ExitStack() as stack, ranks.connected():
        done = ranks.leads and _is_done(prepared, preset, folder, initial)
        if ranks.leads and not done:
            stack.enter_context(file_lock(folder / CONFIG, f"the training on {prepared.meta.name}"))
            # another process may have ended it meanwhile
            done = _is_done(prepared, preset, folder, initial)
        elif ranks.leads:
            remove_left(folder / CONFIG)
        if not ranks.all_gather_object(done)[0]:
            _train(prepared, preset, folder, device, provenance, initial, ranks)
    return load_checkpoint(folder, dictionary_sha256=prepared.meta.dictionary_hash)


def _is_done(prepared: PreparedCorpus, preset: Preset, folder: Path, initial: Path | None) -> bool:
    """Return whether a folder holds the model of a finished training; refuse another training's
    model.
    """
    document = read_config(folder)
    if not document or (folder / STATE).exists():
        return False
    training = document.get("training", {})
    text = _text_sha256(prepared)
    beginning = "" if initial is None else read_config(initial).get("weights_sha256", "")
    wanted = (
        preset.model.to_dict(),
        preset.training.to_dict(),
        prepared.meta.dictionary_hash,
        text,
        beginning,
    )
    stored = (
        document.get("config"),
        training.get("config"),
        document.get("dictionary_sha256"),
        training.get("corpus", {}).get("text_sha256", text),  # an earlier version wrote none
        training.get("initial_sha256", ""),
    )
    if stored != wanted:
        raise UserError(
            f"{folder} already holds another model; choose another output_path or delete it"
        )
    return True


def _train(
    prepared: PreparedCorpus,
    preset: Preset,
    folder: Path,
    device: torch.device,
    provenance: dict[str, Any],
    initial: Path | None,
    ranks: Ranks,
) -> None:
    together = awd_lstm.TrainingRanks(ranks.rank, ranks.size)
    try:
        if ranks.leads:
            folder.mkdir(parents=True, exist_ok=True)
        keep_freed_memory()
        begun = ranks.all_gather_object((folder / STATE).exists())[0]
        if not begun:
            _announce(prepared, preset, device, together)
        trainer = Trainer(
            preset.model,
            preset.training,
            prepared.tokens("train"),
            prepared.tokens("valid"),
            folder,
            dictionary_sha256=prepared.meta.dictionary_hash,
            text_sha256=_text_sha256(prepared),
            device=device,
            initial=initial,
            ranks=together,
        )
        # only now is it known that the folder holds no other run, whose words these are not
        if ranks.leads:
            prepared.dictionary.save(folder / DICTIONARY_FILE)
            prepared.tokenizer().save(folder)
            trainer.provenance = {
                **provenance,
                "corpus": _describe(prepared, sha256(folder / DICTIONARY_FILE)),
            }
        if trainer.record.segments:
            log(
                f"the run that was interrupted goes on in {folder}: {trainer.record.epoch} of "
                f"{preset.training.epochs} "
                f"epochs are done, and {100 * trainer.record.position / len(trainer.streams):.0f} "
                "% of the next"
            )
        elif begun:
            log(
                f"the run that was interrupted in {folder} had learned nothing yet: it starts "
                "again from the beginning"
            )
        _run(trainer, prepared.meta.name)
        if ranks.leads:
            (folder / STATE).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {reason(error)}; choose a place with space and permission"
        ) from error
    except ValueError as error:
        raise UserError(str(error)) from error


def _describe(prepared: PreparedCorpus, dictionary: str) -> dict[str, Any]:
    """Return a checkpoint's record of its text: enough to read another text the same way."""
    meta = prepared.meta
    return {
        "name": meta.name,
        "normalization": meta.normalization,
        "tokenizer": meta.tokenizer,
        "train_tokens": prepared.split("train").tokens,
        "dictionary_file_sha256": dictionary,
        "text_sha256": _text_sha256(prepared),
        "provenance": meta.provenance,
    }


def _text_sha256(prepared: PreparedCorpus) -> dict[str, str]:
    """Return hashes of the ids that a training reads; the dictionary's hash does not cover their
    order.
    """
    return {split: prepared.split(split).sha256 for split in ("train", "valid")}


def _announce(
    prepared: PreparedCorpus, preset: Preset, device: torch.device, together: awd_lstm.TrainingRanks
) -> None:
    """Print how long the run will take, measured on a few segments, before it starts."""
    ids = prepared.tokens("train")
    config = preset.training
    seconds = training_seconds(preset.model, config, ids, device=device, ranks=together)
    log(
        f"{config.epochs} x {len(ids):,} tokens: about {duration(seconds)} on this machine; "
        "if it is interrupted, run the same command to continue"
    )


def _run(trainer: Trainer, name: str) -> None:
    """Train with a bar that shows loss, validation perplexity and speed."""
    steps = trainer.config.epochs * len(trainer.streams)
    with bar() as progress:
        task = progress.add_task(
            f"train {name}", total=steps, unit="steps", completed=trainer.progress * steps
        )  # what an earlier run did took none of this one's time

        def show(event: Event) -> None:
            note = f"steps, loss {event.loss:.2f}, {event.tokens_per_second:,.0f} tokens/s"
            progress.update(task, completed=event.progress * steps, unit=note)
            if event.valid is not None:
                epochs = f"epoch {event.epoch}/{trainer.config.epochs}"
                progress.console.print(
                    f"{epochs} | valid loss {event.valid:.3f} | valid ppl "
                    f"{math.exp(min(event.valid, 80.0)):.2f}"
                )

        def stop(number: int, frame: Any) -> None:
            if trainer.stopped:
                raise KeyboardInterrupt
            trainer.stopped = True
            log(
                "interrupted: the state after this segment is saved; press Ctrl-C again to stop at "
                "once"
            )

        with handled(stop):
            trainer.run(show)
