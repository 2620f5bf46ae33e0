"""Permuted MNIST (the paper's Fig. mnist): tasks learnt one after the other, with and without EWC
and a memory.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hebblm.errors import UserError
from hebblm.io.files import hash_of, read_json, write_json
from hebblm.io.tensors import placed
from hebblm.memory import FlatMemory
from hebblm.report.result.record import decode, encode
from hebblm.runtime.ranks import current
from hebblm.vision.data import ImageDataset, Images
from hebblm.vision.mlp import MLP, Parameters, Penalty, fisher_diagonal, train_task
from hebblm.vision.mlp_adaptation import Adapted, Stored, adapt_mlp
from hebblm.vision.result import MISSING, Outcome, Point, SeedRun, Tried, Values, best
from hebblm.vision.settings import PermutedSettings
from hebblm.vision.state import (
    NUMBERS,
    DivergedError,
    Setup,
    Step,
    divided,
    generator,
    program,
    stage,
    summed,
    take_steps,
)

PARAMETERS = ("weight", "bias", "output", "offset")
TRAINED = "training"

Measure = Callable[[MLP, int], Step]
"""From the network after task t, and t, to every method that starts from it: predictions (t + 1, n)
uint8, task by task of the first n test samples, and how many queries' neighbours' loss
``loss_increased`` by their adaptation.
"""


@dataclass(frozen=True)
class Draw:
    """Permutations and samples that a seed decides about the tasks."""

    # (T, D) int64; task t shows pixel permutations[t, j] of a picture at place j
    permutations: Tensor
    # (T, n) int64 samples of each task among the training part; the first ones are those stored
    train: Tensor
    held_out: Tensor  # (m,) int64 samples of the training part that are in no task
    test: Tensor  # (n,) int64 samples of the test part


def draw(dataset: ImageDataset, settings: PermutedSettings, seed: int) -> Draw:
    """Draw the tasks of a seed; the first tasks are the same whatever their number."""
    if settings.train_samples > len(dataset.train) - settings.held_out:
        raise UserError(
            f"train_samples = {settings.train_samples} and held_out = {settings.held_out} are more "
            "than the "
            f"{len(dataset.train):,} samples of {dataset.name}; lower one"
        )
    if settings.test_samples > len(dataset.test):
        raise UserError(
            f"test_samples = {settings.test_samples} is more than the {len(dataset.test):,} test "
            "samples of "
            f"{dataset.name}; lower it"
        )
    order = torch.randperm(len(dataset.train), generator=generator(seed, "held out"))
    held_out, pool = order[: settings.held_out], order[settings.held_out :]
    pixels = generator(seed, "permutations")
    samples = generator(seed, "samples")
    width = dataset.train.width
    permutations = []
    train = []
    for _ in range(settings.tasks):
        permutations.append(torch.randperm(width, generator=pixels))
        chosen = torch.randperm(len(pool), generator=samples)[: settings.train_samples]
        train.append(pool[chosen])
    test = torch.randperm(len(dataset.test), generator=generator(seed, "test"))
    return Draw(
        permutations=torch.stack(permutations),
        train=torch.stack(train),
        held_out=held_out,
        test=test[: settings.test_samples],
    )


class TaskStream:
    """A seed's tasks on a device, as pixels (n, D) and labels (n,)."""

    def __init__(
        self, dataset: ImageDataset, settings: PermutedSettings, seed: int, device: torch.device
    ) -> None:
        self.dataset = dataset
        self.settings = settings
        self.seed = seed
        self.device = device
        self.drawn = draw(dataset, settings, seed)

    def train(self, task: int) -> tuple[Tensor, Tensor]:
        """The training samples of a task; the first of them are those that go to the memory."""
        return self._take(self.dataset.train, self.drawn.train[task], task)

    def held_out(self, size: int) -> tuple[list[Tensor], Tensor]:
        """The first ``size`` held-out samples as each task of tuning shows them, and the labels of
        all.
        """
        samples = self.drawn.held_out[:size]
        tasks = range(self.settings.tune_tasks)
        drawn = [self._take(self.dataset.train, samples, task) for task in tasks]
        return [pixels for pixels, _ in drawn], torch.cat([labels for _, labels in drawn])

    def test(self, task: int, size: int) -> tuple[Tensor, Tensor]:
        """The first ``size`` test samples as the task shows them."""
        return self._take(self.dataset.test, self.drawn.test[:size], task)

    def counts(self, tasks: int) -> Tensor:
        """How many training samples of each class the first ``tasks`` tasks have (C,) int64."""
        labels = self.dataset.train.labels[self.drawn.train[:tasks].flatten()]
        return torch.bincount(labels, minlength=self.dataset.classes).to(self.device)

    def under(self, model: MLP, tasks: int, size: int) -> Stored:
        """A network's memory after some tasks: ``size`` samples of each, pixels as keys."""
        memory = FlatMemory(self.dataset.train.width, device=self.device)
        for task in range(tasks):
            memory.add(*self._take(self.dataset.train, self.drawn.train[task, :size], task))
        return Stored.under(memory, model)

    def adapted(self, stored: Stored, pixels: Tensor, lr: float) -> Adapted:
        """Adapt a network to the neighbours of queries (N, D) as the settings have it."""
        settings = self.settings
        return adapt_mlp(
            stored,
            pixels,
            k=settings.k,
            lr=lr,
            rate=settings.mbpa_rate,
            steps=settings.steps,
            eps=settings.eps,
        )

    def _take(self, images: Images, index: Tensor, task: int) -> tuple[Tensor, Tensor]:
        pixels = images.flat(index)[:, self.drawn.permutations[task]]
        return pixels.to(self.device), images.labels[index].to(self.device)


class Chain:
    """Network that learns the tasks of a stream in turn; EWC with a ``strength``, and without a
    penalty for None.
    """

    def __init__(self, stream: TaskStream, strength: float | None) -> None:
        settings = stream.settings
        dataset = stream.dataset
        drawn = MLP.initial(
            dataset.train.width, settings.hidden, dataset.classes, generator(stream.seed, "network")
        )
        self.model = drawn.to(stream.device)
        self._penalty = None if strength is None else Penalty.none(self.model.parameters())
        self._stream = stream
        self._strength = strength or 0.0

    def learn(self, task: int) -> None:
        settings = self._stream.settings
        pixels, labels = self._stream.train(task)
        order = generator(self._stream.seed, f"order of task {task}")
        self.model = train_task(
            self.model,
            pixels,
            labels,
            settings,
            generator=order,
            penalty=self._penalty,
            strength=self._strength,
        )
        if self._penalty is not None:
            fisher = fisher_diagonal(self.model, pixels, labels, kind=settings.fisher)
            self._penalty = self._penalty.fold(self.model.parameters(), fisher, settings.ewc_anchor)

    def state_dict(self) -> dict[str, Tensor]:
        groups: dict[str, Parameters] = {"model": self.model.parameters()}
        if self._penalty is not None:
            groups |= {"precision": self._penalty.precisions, "centre": self._penalty.centres}
        state = {}
        for group, parameters in groups.items():
            for name, parameter in zip(PARAMETERS, parameters, strict=True):
                state[f"{group}.{name}"] = parameter
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        def group(prefix: str) -> Parameters:
            return tuple(
                placed(state[f"{prefix}.{name}"], self._stream.device) for name in PARAMETERS
            )

        self.model = MLP.of(group("model"))
        if self._penalty is not None:
            self._penalty = Penalty(group("precision"), group("centre"))

    def run(
        self, measure: Measure, title: str, *, tasks: int, path: Path, run: str
    ) -> tuple[dict[str, Tensor], dict[str, dict[str, float]]]:
        """Learn the tasks in turn, and measure after each; see
        :func:`hebblm.vision.state.take_steps`.

        By method, predictions (T, T, n) uint8, ``MISSING`` where not made; by method, queries whose
        neighbours' loss rose, and by ``training`` its seconds.
        """
        settings = self._stream.settings

        def step(task: int) -> Step:
            begin = time.perf_counter()
            self.learn(task)
            seconds = time.perf_counter() - begin
            predictions, numbers = measure(self.model, task)
            whole = {}
            for name, predicted in predictions.items():
                whole[name] = torch.full(
                    (settings.tasks, settings.test_samples), MISSING, dtype=torch.uint8
                )
                whole[name][: task + 1, : predicted.shape[1]] = predicted
            return whole, {TRAINED: {"seconds": seconds}, **numbers}

        predictions, taken = take_steps(path, run, tasks, step, learner=self, title=title)
        return predictions, summed(taken)


def run_permuted(setup: Setup[PermutedSettings]) -> Outcome:
    settings = setup.settings
    streams = [TaskStream(setup.dataset, settings, seed, setup.device) for seed in setup.seeds]
    decisive = {
        "settings": asdict(settings),
        "data": dict(setup.dataset.sha256),
        "device": setup.device.type,
        "program": program(*NUMBERS),
        "tuned_with": setup.seeds[0] if settings.tuned else None,
    }
    tried = None
    values = settings.first()
    if settings.tuned:
        with current().in_turn():
            tried = _tune(streams[0], setup.state, hash_of(decisive))
        values = {name: best(points) for name, points in tried.items()}
    runs = []
    for stream in streams:
        run = hash_of({**decisive, "seed": stream.seed, "values": values})
        runs.append(partial(_run_seed, stream, values, setup.state, run))
    return Outcome(tuple(divided(runs)), {"": tried})


def _tune(stream: TaskStream, folder: Path, run: str) -> Tried:
    settings = stream.settings
    path = folder / f"tuning-{run}.json"
    if path.exists():
        known: Tried = decode(read_json(path), "tuning")
        return known

    def learnt(name: str, title: str, strength: float | None) -> MLP:
        chain = Chain(stream, strength)
        kept = folder / f"tuning-{name}.state.safetensors"
        chain.run(
            lambda model, task: ({}, {}),
            f"tune {title}",
            tasks=settings.tune_tasks,
            path=kept,
            run=run,
        )
        return chain.model

    tried: Tried = {"ewc": []}
    pixels, labels = stream.held_out(settings.held_out)
    for strength in settings.ewc_lambda:
        try:
            model = learnt(f"ewc-{strength:g}", f"EWC, lambda {strength:g}", strength)
            scores = _scores(torch.cat([model.logits(batch) for batch in pixels]), labels)
        except DivergedError:
            scores = {"accuracy": 0.0, "loss": math.inf}
        tried["ewc"].append({"lambda": strength, **scores})
    model = learnt("mlp", "MbPA and Hebb", None)
    for size in settings.stored:
        tried |= _tune_adaptation(stream, model, size)
    write_json(path, encode(tried, "tuning"), seal=True)
    return tried


def _tune_adaptation(stream: TaskStream, model: MLP, size: int) -> Tried:
    """Try MbPA's lambda, and with the best one Hebb's beta and eta, after the tasks that tuning
    runs through.

    Hebb takes over MbPA's lambda, as in the paper (its appendix), so that one pass serves both.
    """
    settings = stream.settings
    stored = stream.under(model, settings.tune_tasks, size)
    parts, labels = stream.held_out(settings.tune_samples)
    pixels = torch.cat(parts)
    counts = stream.counts(settings.tune_tasks)
    mbpa: list[Point] = []
    hebb: dict[float, list[Point]] = {}
    with stage(f"tune MbPA-{size} and Hebb-{size}", len(settings.mbpa_lambda), "rates") as progress:
        for lr in settings.mbpa_lambda:
            adapted = stream.adapted(stored, pixels, lr)
            mbpa.append({"lr": lr, **_scores(adapted.mbpa(), labels)})
            hebb[lr] = []
            for beta, eta in itertools.product(settings.hebb_beta, settings.hebb_eta):
                logits = adapted.hebb(counts, beta=beta, eta=eta)
                hebb[lr].append({"beta": beta, "eta": eta, **_scores(logits, labels)})
            progress(1)
    return {f"mbpa-{size}": mbpa, f"hebb-{size}": hebb[best(mbpa)["lr"]]}


def _scores(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """The share of right answers and the mean loss in nats of logits (N, C)."""
    accuracy = (logits.argmax(1) == labels).double().mean()
    return {"accuracy": float(accuracy), "loss": float(cross_entropy(logits.double(), labels))}


def _run_seed(stream: TaskStream, values: Values, folder: Path, run: str) -> SeedRun:
    """Learn all tasks twice, with and without EWC, and evaluate after each."""
    seed = stream.seed
    settings = stream.settings
    predictions: dict[str, Tensor] = {}
    counted: dict[str, dict[str, float]] = {}
    training = {}
    # MbPA and Hebb go over the network without a penalty, with a memory of each size.
    networks: tuple[tuple[str, float | None, tuple[int, ...]], ...] = (
        ("mlp", None, settings.stored),
        ("ewc", values["ewc"]["lambda"], ()),
    )
    for name, strength, sizes in networks:
        path = folder / f"seed-{seed}-{name}.state.safetensors"
        measure = partial(_measure, stream, values, name, sizes)
        predicted, numbers = Chain(stream, strength).run(
            measure, f"seed {seed}, {name}", tasks=settings.tasks, path=path, run=run
        )
        training[name] = numbers.pop(TRAINED)["seconds"]
        predictions |= predicted
        counted |= numbers
    labels = stream.dataset.test.labels[stream.drawn.test]
    about = {"training_seconds": training}
    return SeedRun(seed, values, labels, predictions, counted, vars(stream.drawn), about=about)


def _measure(
    stream: TaskStream, values: Values, name: str, sizes: tuple[int, ...], model: MLP, task: int
) -> Step:
    """What a network itself predicts on all tasks so far, and MbPA and Hebb over it with each of
    some memories.

    MbPA and Hebb share one adaptation pass.
    """
    tests = [stream.test(at, stream.settings.tested(task))[0] for at in range(task + 1)]
    predictions = {name: torch.stack([_classes_of(model.logits(pixels)) for pixels in tests])}
    numbers: dict[str, dict[str, float]] = {name: {"rose": 0}}
    counts = stream.counts(task + 1)
    for size in sizes:
        stored = stream.under(model, task + 1, size)
        mbpa = f"mbpa-{size}"
        hebb = f"hebb-{size}"
        adapted = [stream.adapted(stored, pixels, values[mbpa]["lr"]) for pixels in tests]
        predictions[mbpa] = torch.stack([_classes_of(network.mbpa()) for network in adapted])
        predictions[hebb] = torch.stack(
            [_classes_of(network.hebb(counts, **values[hebb])) for network in adapted]
        )
        loss_increased = sum(int(network.loss_increased.sum()) for network in adapted)
        numbers |= {mbpa: {"rose": loss_increased}, hebb: {"rose": loss_increased}}
    return predictions, numbers


def _classes_of(logits: Tensor) -> Tensor:
    return logits.argmax(1).to(torch.uint8).cpu()
