"""Setup of an image experiment, its seeds, and the state with which it goes on after an
interruption.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.io.files import hash_of_code
from hebblm.io.tensors import read_tensors, write_tensors
from hebblm.runtime.progress import bar
from hebblm.runtime.ranks import current
from hebblm.vision.data import ImageDataset

R = TypeVar("R")
S = TypeVar("S")
STATE = "state"
FORMAT = "hebblm-vision-state/1"
KIND = "hebblm-vision"
PREDICTIONS = "predictions."
PACKAGE = Path(__file__).parents[1]
TRAINING = tuple(
    f"vision/{name}.py" for name in ("backbones", "data", "learning", "pretraining", "split")
)
NUMBERS = (
    "adapt", "memory", "online/ranks.py", "online/session.py", "types.py", *TRAINING,
    *(f"vision/{name}.py" for name in ("classes", "fine_tuning", "gate", "mlp", "mlp_adaptation",
    "permuted", "reading", "state", "tuning")),
)  # fmt: skip
"""Parts of the program that the numbers of an experiment depend on; those of a pre-training, on
``TRAINING`` alone.
"""

Numbers = Mapping[str, Mapping[str, float]]
"""By method, what was counted or timed."""
Step = tuple[Mapping[str, Tensor], Numbers]
"""By method, predictions uint8; and numbers."""


class DivergedError(UserError):
    """Training ceased to be finite; a rate that is tried is then the worst."""


@dataclass(frozen=True, slots=True)
class Setup(Generic[S]):
    """An experiment before it is run."""

    dataset: ImageDataset
    settings: S
    seeds: tuple[int, ...]  # at least one, each once; hyper-parameters are tuned with the first
    device: torch.device
    cache: Path  # pre-trained networks and what was tuned
    folder: Path  # receives the result, and ``state/`` while a run lasts

    @property
    def state(self) -> Path:
        return self.folder / STATE

    def clear(self) -> None:
        shutil.rmtree(self.state, ignore_errors=True)


def generator(seed: int, purpose: str) -> torch.Generator:
    """A stream of random numbers of its own for each purpose of a seed."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


@cache
def program(*parts: str) -> str:
    """Torch's version and a hash of parts of this package, by their paths: what they gave may be
    kept.
    """
    return f"{torch.__version__} {hash_of_code(*(PACKAGE / part for part in parts))}"


@contextmanager
def stage(description: str, total: int, unit: str = "pictures") -> Iterator[Callable[[int], None]]:
    """Show a bar of ``total`` things left to do while the block runs, and yield what advances
    it.
    """
    with bar() as progress:
        task = progress.add_task(description, total=total, unit=unit)
        yield lambda count: progress.advance(task, count)


def divided(runs: Sequence[Callable[[], R]]) -> list[R]:
    """What runs give, in their order: several ranks divide them, and read the others' from what
    these kept.

    Each run keeps what it has on disk and, called again, gives the same from there.
    """
    ranks = current()
    done = {index: runs[index]() for index in ranks.tasks(len(runs))}
    ranks.wait()
    results = []
    for index, run in enumerate(runs):
        results.append(done[index] if index in done else run())
    ranks.wait()  # until all have read what the first may remove
    return results


class _Learner(Protocol):
    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...


def take_steps(
    path: Path,
    run: str,
    count: int,
    step: Callable[[int], Step],
    *,
    learner: _Learner | None = None,
    title: str = "",
) -> tuple[dict[str, Tensor], list[Numbers]]:
    """By method, the predictions of all steps (count, ...) uint8; the numbers of each step.

    They go on after the last one that ``path`` has, which is written after each.

    ``run`` is a hash of everything that decides about the numbers, ``step`` takes a step counted
    from 0, ``learner`` is what the steps change. Without a ``title`` there is no bar: each step
    shows by itself what it does.
    """
    predictions: dict[str, Tensor] = {}
    taken: list[Numbers] = []
    if (state := load_state(path, run)) is not None:
        tensors = state[0]
        taken = state[1]["taken"]
        keys = {name: f"{PREDICTIONS}{name}" for name in taken[0]}
        predictions = {name: tensors.pop(key) for name, key in keys.items() if key in tensors}
        if learner is not None:
            learner.load_state_dict(tensors)
    with (
        stage(title, count - len(taken), "steps")
        if title
        else nullcontext(lambda steps: None) as progress
    ):
        for at in range(len(taken), count):
            predicted, numbers = step(at)
            taken.append(numbers)
            for name, classes in predicted.items():
                before = predictions.get(name, classes.new_empty(0, *classes.shape))
                predictions[name] = torch.cat([before, classes.unsqueeze(0)])
            tensors = {} if learner is None else learner.state_dict()
            tensors |= {f"{PREDICTIONS}{name}": classes for name, classes in predictions.items()}
            save_state(path, tensors, {"run": run, "taken": taken})
            progress(1)
    return predictions, taken


def summed(taken: Sequence[Numbers]) -> dict[str, dict[str, float]]:
    """Return the sums over steps of their numbers; every step has the same ones."""
    sums = {}
    for name, numbers in taken[0].items():
        sums[name] = {key: sum(step[name][key] for step in taken) for key in numbers}
    return sums


def save_state(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one file, so that they cannot be of different moments."""
    write_tensors(path, tensors, KIND, {"format": FORMAT, "record": json.dumps(record)})


def load_state(
    path: Path,
    run: str,
    *,
    remedy: str = "delete {folder} to start anew, or choose another `output_path`",
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read what :func:`save_state` wrote, or return None where there is no such file.

    ``run`` is a hash of everything that decides about the numbers. In the ``remedy`` for a file
    that cannot be used, ``{folder}`` and ``{path}`` are filled in.
    """
    if not path.exists() and not path.is_symlink():
        return None
    remedy = remedy.format(folder=path.parent, path=path)
    tensors, header = read_tensors(path, KIND, remedy)
    if header.get("format") != FORMAT:
        raise UserError(f"{path} is not the state of an image experiment; {remedy}")
    record = json.loads(header["record"])
    if record.get("run") != run:
        raise UserError(
            f"{path} belongs to a run with other settings, data, seeds or program; {remedy}"
        )
    return tensors, record
