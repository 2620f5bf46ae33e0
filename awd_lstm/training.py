"""Training over token streams: SGD that turns into NT-ASGD, or AdamW; resumes bit for bit after a
kill.

Several processes divide the streams of a batch: each draws what is random for the whole batch, so
that their number decides about nothing but rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from awd_lstm.checkpoint import (
    STATE,
    WEIGHTS,
    file_sha256,
    load_checkpoint,
    load_state,
    pack_optimizer,
    save_checkpoint,
    save_state,
    unpack_optimizer,
)
from awd_lstm.config import AWDLSTMConfig
from awd_lstm.document import CheckpointError, read_config
from awd_lstm.loss import linear_cross_entropy, sampled_cross_entropy
from awd_lstm.model import AWDLSTM, State, detach
from awd_lstm.regularization import activation_penalty, temporal_activation_penalty
from awd_lstm.schedule import (
    TrainingConfig,
    learning_rate,
    product_type,
    segment_length,
    starts_averaging,
)
from awd_lstm.streams import Ids, ParallelStreams, TrainingRanks

LOG_EVERY = 100  # segments
VALID_STREAMS = 10
LARGEST = 700.0  # nats a token; beyond it, a perplexity is no number


@dataclass(slots=True)
class Record:
    """The part of a run's state that is JSON."""

    model: dict[str, Any]
    training: dict[str, Any]
    dictionary_sha256: str
    text_sha256: dict[str, str] = field(default_factory=dict)
    initial_sha256: str = ""
    epoch: int = 0
    position: int = 0
    segments: int = 0
    loss_sum: float = 0.0
    loss_tokens: int = 0
    averaging: bool = False
    seconds: float = 0.0
    curve: list[tuple[int, int, float]] = field(default_factory=list)
    """(epoch, segments so far, mean training loss since the last entry)."""
    valid: list[float] = field(default_factory=list)
    """Validation loss after each epoch, nats a token."""


@dataclass(frozen=True, slots=True)
class Event:
    """Report of a run as it goes: ``progress`` is the share done of all epochs."""

    epoch: int
    progress: float
    loss: float
    valid: float | None
    tokens_per_second: float


class Trainer:
    """Training run of an AWD-LSTM in ``folder``, begun there or gone on with where it was
    interrupted.

    The folder receives ``training.safetensors`` (the whole state, every ``save_every`` seconds) and
    the checkpoint of the best validation loss. The loss curve of a killed and resumed run equals
    that of an undisturbed one on the same machine and number of threads.

    ``stopped``, set from outside, ends :meth:`run` after the present segment, with the state saved.

    Args:
        model_config: shape of the model.
        config: options of the training.
        train: (T,) token ids; may be a memory map.
        valid: (T,) token ids.
        folder: folder of state and checkpoint.
        dictionary_sha256: hash of the dictionary that made the ids.
        text_sha256: hashes of the ids by split, if the caller has them; a run goes on only with the
            same ids.
        device: device of the training.
        provenance: JSON object written into the checkpoint, e.g. command and versions.
        initial: folder of a checkpoint whose weights the run begins with instead of random ones;
            SGD then averages from its first step, as AWD-LSTM's fine-tuning does.
        ranks: the processes that train together; all of them see the folder, and the first one
            writes there.

    Raises:
        CheckpointError: the folder holds a run with other settings, another dictionary, text or
            beginning, or ``initial`` no model of this shape and dictionary.
        ValueError: the text is too short for the batch, or the batch has fewer streams than there
            are processes.
    """

    def __init__(  # noqa: PLR0913 - all but the first five have defaults, and users pass them by name
        self,
        model_config: AWDLSTMConfig,
        config: TrainingConfig,
        train: Ids,
        valid: Ids,
        folder: Path,
        *,
        dictionary_sha256: str,
        text_sha256: dict[str, str] | None = None,
        device: torch.device | None = None,
        provenance: dict[str, Any] | None = None,
        initial: Path | None = None,
        ranks: TrainingRanks | None = None,
    ) -> None:
        self.config = config
        self.ranks = ranks or TrainingRanks()
        if config.batch_size < self.ranks.count:
            raise ValueError(
                f"{self.ranks.count} processes are more than the {config.batch_size} streams of a "
                "batch; use fewer"
            )
        self.folder = folder
        self.device = device or torch.device("cpu")
        self.provenance = provenance or {}
        self.streams = ParallelStreams(
            train, config.batch_size, self.ranks.partition(config.batch_size)
        )
        count = min(VALID_STREAMS, max(1, len(valid) // 2))
        self.valid_streams = ParallelStreams(valid, count, self.ranks.partition(count))
        self.stopped = False
        self.record = Record(
            model_config.to_dict(), config.to_dict(), dictionary_sha256, text_sha256 or {}
        )
        self._counted = time.monotonic()  # record.seconds end here
        torch.manual_seed(config.seed)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.model = AWDLSTM(model_config).to(self.device)
        if initial is not None:
            self._begin_with(initial)
        self.model.share = self.streams.share
        self.products = product_type(config.precision, self.device)
        if product_type(config.recurrent, self.device) == torch.bfloat16:
            self.model.train_in(torch.bfloat16)
        self.hidden: State = self.model.initial_state(len(self.streams.share))
        self.optimizer = self._new_optimizer(averaging=self.record.averaging)
        self.proposal = _unigram(train, model_config.vocabulary_size).to(self.device)
        self._resume()
        segments = self.record.segments
        if self.ranks.sum(segments, self.device) != segments * self.ranks.count:
            raise CheckpointError(
                f"the processes see different states in {folder}; use a folder they all see"
            )
        self.parallel = self.ranks.parallel(self.model)

    def _begin_with(self, initial: Path) -> None:
        checkpoint = load_checkpoint(initial, dictionary_sha256=self.record.dictionary_sha256)
        if checkpoint.config.layer_sizes() != self.model.config.layer_sizes():
            sizes = (
                f"layers of {checkpoint.config.layer_sizes()}, not "
                f"{self.model.config.layer_sizes()}"
            )
            raise CheckpointError(
                f"the model in {initial} has {sizes}; choose the preset and arch that it was "
                "trained with"
            )
        self.model.load_state_dict(checkpoint.state_dict())
        self.record.initial_sha256 = file_sha256(initial / WEIGHTS)
        self.record.averaging = self.config.optimizer == "sgd"

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.record.epoch >= self.config.epochs

    def run(self, report: Callable[[Event], None] | None = None, save_every: float = 60.0) -> None:
        """Train to the end; ``report`` is called after every segment.

        Raises:
            KeyboardInterrupt: the run was stopped.
            ValueError: training diverged.
        """
        if not self.record.segments:
            # A model without a state is taken for another run's, so the state comes first.
            self._save()
        began = self._counted = time.monotonic()
        tokens = 0
        while not self.finished:
            loss, count = self.step()
            tokens += count
            valid = self._end_epoch() if self.record.position >= len(self.streams) else None
            now = time.monotonic()
            if report is not None:
                report(Event(self.record.epoch, self.progress, loss, valid, tokens / (now - began)))
            stopped = self.stopped  # read once, so that all processes get the same answer
            if self.ranks.any(
                stopped or valid is not None or now - self._counted >= save_every, self.device
            ):
                self.record.seconds += now - self._counted
                self._save()
                self._counted = now
                if self.ranks.any(stopped, self.device):
                    raise KeyboardInterrupt

    def step(self) -> tuple[float, int]:
        """Learn from the next segment; return its loss (nats a token) and size."""
        record, config = self.record, self.config
        length = segment_length(config.bptt, self.generator)
        inputs, targets = self.streams.segment(record.position, length, self.device)  # (b, L)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.progress, inputs.shape[1])
        self.model.train()
        out = self.parallel(inputs, detach(self.hidden))
        self.hidden = out.state
        loss = self._loss(out.hidden.reshape(-1, out.hidden.shape[-1]), targets.reshape(-1))
        time_major = out.hidden.transpose(0, 1), out.raw.transpose(0, 1)
        penalty = activation_penalty(time_major[0], config.alpha)
        penalty = penalty + temporal_activation_penalty(time_major[1], config.beta)
        self.optimizer.zero_grad(set_to_none=False)
        weight = self.streams.share.weight  # of this process's means in those of the batch
        # Gradients are averaged over the processes; each has a part of the sum.
        torch.autograd.backward((loss + penalty) * (weight * self.ranks.count))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        self.optimizer.step()
        value = self._checked(self.ranks.sum(loss.item() * weight, self.device))
        count = inputs.shape[1] * config.batch_size
        record.position += inputs.shape[1]
        record.segments += 1
        record.loss_sum += value * count
        record.loss_tokens += count
        if record.segments % LOG_EVERY == 0:
            record.curve.append(
                (record.epoch, record.segments, record.loss_sum / record.loss_tokens)
            )
            record.loss_sum, record.loss_tokens = 0.0, 0
        return value, count

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of hidden states (N, D) by the softmax the schedule asks for."""
        model, config = self.model, self.config
        if config.softmax == "sampled" and self.progress < config.full_from:
            return sampled_cross_entropy(
                hidden,
                model.embedding,
                model.bias,
                targets,
                self.proposal,
                config.samples,
                self.products,
            )
        return linear_cross_entropy(hidden, model.embedding, model.bias, targets, self.products)

    @property
    def progress(self) -> float:
        """Share of all epochs that is done."""
        return (self.record.epoch + self.record.position / len(self.streams)) / self.config.epochs

    def _end_epoch(self) -> float:
        """Validate, keep the best model, and let NT-ASGD's trigger decide; return the validation
        loss.
        """
        record = self.record
        with self._averaged_weights():
            share = self.valid_streams.share
            own_loss = (
                validation_loss(self.model, self.valid_streams, self.device) if len(share) else 0.0
            )
            valid = self._checked(self.ranks.sum(own_loss * share.weight, self.device))
            if not record.valid or valid < min(record.valid):
                self._save_best(valid)
        record.valid.append(valid)
        record.epoch += 1
        record.position = 0
        self.hidden = self.model.initial_state(len(self.streams.share))
        if self.config.optimizer == "sgd" and not record.averaging:
            record.averaging = starts_averaging(record.valid, self.config.nonmono)
            if record.averaging:
                self.optimizer = self._new_optimizer(averaging=True)
        return valid

    def _checked(self, loss: float) -> float:
        """Loss of all processes, nats a token; refuses nan and what is beyond all measure."""
        if not loss < LARGEST:
            raise ValueError(
                f"training diverged: its loss is {loss} with lr = {self.config.lr:g}; lower lr"
            )
        return loss

    def _save_best(self, valid: float) -> None:
        if self.ranks.rank:
            return
        record = self.record
        training = {
            **self.provenance,
            "config": record.training,
            "initial_sha256": record.initial_sha256,
            "epoch": record.epoch + 1,
            "valid_loss": valid,
            "valid_perplexity": math.exp(valid),
            "valid_losses": [*record.valid, valid],
            "curve": record.curve,
            "seconds": record.seconds + time.monotonic() - self._counted,
            "threads": torch.get_num_threads(),
            "processes": self.ranks.count,
        }
        save_checkpoint(
            self.folder, self.model, dictionary_sha256=record.dictionary_sha256, training=training
        )

    def _new_optimizer(self, *, averaging: bool) -> torch.optim.Optimizer:
        config, parameters = self.config, self.model.parameters()
        for p in self.model.parameters():
            # sparse gradients of words are added into it, so that V x D is held once
            p.grad = torch.zeros_like(p)
        if config.optimizer == "adamw":
            return torch.optim.AdamW(
                parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True
            )
        if averaging:
            return torch.optim.ASGD(
                parameters, lr=config.lr, t0=0, lambd=0.0, weight_decay=config.weight_decay
            )
        return torch.optim.SGD(parameters, lr=config.lr, weight_decay=config.weight_decay)

    @contextmanager
    def _averaged_weights(self) -> Iterator[None]:
        """Put ASGD's running average in place of the weights, if there is one, for the time of the
        block.
        """
        if not self.record.averaging:
            yield
            return
        kept = [p.detach().clone() for p in self.model.parameters()]
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(self.optimizer.state[p]["ax"])
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(self.model.parameters(), kept, strict=True):
                    p.copy_(value)

    def _save(self) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= pack_optimizer(self.optimizer)
        for index, layer in enumerate(self.hidden):
            h, c = (self.ranks.whole(rows, self.streams.share) for rows in layer)  # (B, H)
            tensors |= {f"hidden.{index}.h": h, f"hidden.{index}.c": c}
        if self.ranks.rank:
            return
        tensors |= {"rng.torch": torch.get_rng_state(), "rng.segments": self.generator.get_state()}
        if self.device.type == "cuda":
            tensors["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        record = {name: getattr(self.record, name) for name in Record.__slots__}
        save_state(self.folder / STATE, tensors, record)

    def _resume(self) -> None:
        """Go back to the last saved state of the run in the folder, if there is one."""
        path = self.folder / STATE
        if not path.exists():
            if read_config(self.folder):
                raise CheckpointError(
                    f"{self.folder} already holds a model; choose another folder or delete it"
                )
            return
        tensors, stored = load_state(path)
        # not in older ones
        stored = {"text_sha256": self.record.text_sha256, "initial_sha256": "", **stored}
        for name in ("model", "training", "dictionary_sha256", "text_sha256", "initial_sha256"):
            if stored[name] != getattr(self.record, name):
                raise CheckpointError(
                    f"{self.folder} holds a run whose {name} differs; choose another folder or "
                    "delete it"
                )
        self.record = Record(**{**stored, "curve": [(e, s, v) for e, s, v in stored["curve"]]})
        self.optimizer = self._new_optimizer(averaging=self.record.averaging)
        self.model.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        unpack_optimizer(self.optimizer, tensors)
        layers, rows = range(self.model.config.layers), self.streams.share.rows
        self.hidden = tuple(
            (
                tensors[f"hidden.{i}.h"][rows].to(self.device),
                tensors[f"hidden.{i}.c"][rows].to(self.device),
            )
            for i in layers
        )
        torch.set_rng_state(tensors["rng.torch"])
        self.generator.set_state(tensors["rng.segments"])
        # not in a run that was begun on a CPU
        if self.device.type == "cuda" and "rng.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng.cuda"], self.device)


@torch.no_grad()
def validation_loss(
    model: AWDLSTM, streams: ParallelStreams, device: torch.device, segment: int = 200
) -> float:
    """Mean loss of ``model`` over parallel streams, nats a token.

    A monitor for training: parallel streams start cold and a short tail is left out. Reported
    perplexities come from an evaluation of one stream, token by token.
    """
    model.eval()
    state = model.initial_state(len(streams.share))
    total, count = 0.0, 0
    for start in range(0, len(streams), segment):
        inputs, targets = streams.segment(start, segment, device)
        out = model(inputs, state)
        state = out.state
        hidden = out.hidden.reshape(-1, out.hidden.shape[-1])
        loss = linear_cross_entropy(hidden, model.embedding, model.bias, targets.reshape(-1))
        total += loss.item() * targets.numel()
        count += targets.numel()
    return total / count


def _unigram(ids: Ids, vocabulary_size: int, block: int = 1 << 22) -> Tensor:
    """Share (V,) of each word in the training stream, counted block by block.

    A word that it lacks counts as if it occurred once: one that is never drawn would never be
    pushed down.
    """
    counts = np.zeros(vocabulary_size, dtype=np.int64)
    for start in range(0, len(ids), block):
        counts += np.bincount(
            ids[start : start + block].astype(np.int64), minlength=vocabulary_size
        )
    counts = counts.clip(min=1)
    return torch.from_numpy(counts / counts.sum()).float()
