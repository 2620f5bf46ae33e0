"""State with which an interrupted run goes on: tensors and a record, one atomically written file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.tensors import read_tensors, write_tensors
from hebblm.vision.setup import stage

FORMAT = "hebblm-vision-state/1"
KIND = "hebblm-vision"
PREDICTIONS = "predictions."

Numbers = Mapping[str, Mapping[str, float]]
"""By method, what was counted or timed."""
Step = tuple[Mapping[str, Tensor], Numbers]
"""By method, predictions uint8; and numbers."""


class Resumable(Protocol):
    """Network that learns step by step."""

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by which learning goes on."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` returned."""


def take_steps(
    path: Path,
    run: str,
    count: int,
    step: Callable[[int], Step],
    *,
    learner: Resumable | None = None,
    title: str = "",
) -> tuple[dict[str, Tensor], list[Numbers]]:
    """Take steps in turn, or go on behind the last one that ``path`` has.

    Args:
        path: the state; written after each step.
        run: hash of everything that decides about the numbers.
        count: how many steps there are.
        step: takes one, counted from 0, and returns what was predicted behind it.
        learner: what the steps change, if they change anything.
        title: of a bar that counts the steps; empty where each shows by itself what it does.

    Returns:
        By method, the predictions of all steps (count, ...) uint8; the numbers of each step.

    Raises:
        UserError: the state is of another run or damaged.
    """
    predictions: dict[str, Tensor] = {}
    taken: list[Numbers] = []
    found = load_state(path, run)
    if found is not None:
        tensors, record = found
        taken = record["taken"]
        kept = {name: f"{PREDICTIONS}{name}" for name in taken[0]}
        predictions = {name: tensors.pop(key) for name, key in kept.items() if key in tensors}
        if learner is not None:
            learner.restore(tensors)
    with stage(title, count - len(taken), "steps") if title else nullcontext(lambda steps: None) as progress:
        for at in range(len(taken), count):
            made, numbers = step(at)
            taken.append(numbers)
            for name, classes in made.items():
                before = predictions.get(name, classes.new_empty(0, *classes.shape))
                predictions[name] = torch.cat([before, classes.unsqueeze(0)])
            tensors = {} if learner is None else learner.tensors()
            tensors |= {f"{PREDICTIONS}{name}": each for name, each in predictions.items()}
            save_state(path, tensors, {"run": run, "taken": taken})
            progress(1)
    return predictions, taken


def summed(taken: Sequence[Numbers]) -> dict[str, dict[str, float]]:
    """Return the sums of the numbers over steps, each of which has the same."""
    return {
        name: {key: sum(step[name][key] for step in taken) for key in numbers} for name, numbers in taken[0].items()
    }


def save_state(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one file, so that they cannot be of different moments."""
    write_tensors(path, tensors, KIND, {"format": FORMAT, "record": json.dumps(record)})


def load_state(
    path: Path, run: str, *, remedy: str = "delete {folder} to start anew, or choose another --output-path"
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read what :func:`save_state` wrote, or return None where there is no such file.

    Args:
        path: the file.
        run: what the record has to say under ``run``: a hash of everything that decides about the numbers.
        remedy: what a user can do about a file that cannot be used; ``{folder}`` and ``{path}`` are filled in.

    Raises:
        UserError: truncated, another format, or the state of another run.
    """
    if not path.exists() and not path.is_symlink():
        return None
    remedy = remedy.format(folder=path.parent, path=path)
    tensors, header = read_tensors(path, KIND, remedy)
    if header.get("format") != FORMAT:
        raise UserError(f"{path} is not the state of an image experiment; {remedy}")
    record = json.loads(header["record"])
    if record.get("run") != run:
        raise UserError(f"{path} belongs to a run with other settings, data, seeds or program; {remedy}")
    return tensors, record


def digest(tensor: Tensor) -> str:
    """Return the sha256 of a tensor of whole numbers, as little-endian int64."""
    return hashlib.sha256(tensor.to(torch.int64).numpy().astype("<i8").tobytes()).hexdigest()
