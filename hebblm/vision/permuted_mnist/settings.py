"""Settings of permuted MNIST, and its three scales."""

from __future__ import annotations

from dataclasses import dataclass

from hebblm.adapt import checks
from hebblm.errors import UserError
from hebblm.vision.settings import Anchor, FisherKind, Rate, Scale, Settings, grid

EXPERIMENT = "permuted-mnist"


@dataclass(frozen=True, slots=True)
class PermutedSettings(Settings):
    """A run of permuted MNIST. Where several values stand, the best on held-out samples is taken.

    Args:
        tasks: number of permutations learnt one after the other.
        train_samples: samples of a task.
        test_samples: samples of each task that every method is tested on after the last task.
        curve_samples: how many of them after each earlier task; the curve, forgetting and backward transfer are
            measured on these alone, after the last task too.
        held_out: training samples that no task trains on and tuning evaluates on.
        hidden: hidden units.
        epochs: passes over a task.
        batch_size: samples a step.
        lr: Adam's learning rate.
        stored: samples kept of each task; MbPA and Hebb run once with each.
        k: neighbours a query.
        steps: MbPA's steps.
        eps: constant in the closeness 1 / (eps + squared distance).
        fisher: of EWC, from labels or from predictions.
        ewc_anchor: of EWC's penalty: latest, the weights after the last task, or separate, those after each; with the
            latter tasks in the middle of a long chain are forgotten, and EWC is no better than training without it.
        ewc_lambda: strength of EWC's penalty.
        mbpa_rate: what MbPA's learning rate is in units of: relative, 1 / the curvature of each query's own problem
            (:func:`hebblm.vision.permuted_mnist.adaptation.curvature`), so that it fits networks and memories of any
            size; or absolute, the paper's lambda as it stands.
        mbpa_lambda: MbPA's learning rate.
        hebb_beta: decay of the Hebbian term's weight.
        hebb_eta: scale of the Hebbian term.
        tune_tasks: how many of the tasks tuning runs through. The best ewc_lambda falls with their number: penalties
            add up, and one that suits few tasks leaves later ones no room.
        tune_samples: held-out samples a task on which MbPA and Hebb are tuned; EWC is on all of them.
    """

    tasks: int = 20
    train_samples: int = 10_000
    test_samples: int = 10_000
    curve_samples: int = 1_000
    held_out: int = 1_000
    hidden: int = 1_000
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    stored: tuple[int, ...] = (250, 500)
    k: int = 200
    steps: int = 5
    eps: float = 1e-3
    fisher: FisherKind = "predictions"
    ewc_anchor: Anchor = "latest"
    ewc_lambda: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)
    mbpa_rate: Rate = "relative"
    mbpa_lambda: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0)
    hebb_beta: tuple[float, ...] = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
    hebb_eta: tuple[float, ...] = (0.02, 0.2, 1.0, 2.0, 5.0, 20.0, 50.0, 200.0, 1000.0, 5000.0, 20000.0)
    tune_tasks: int = 20
    tune_samples: int = 200

    def __post_init__(self) -> None:
        for name in ("tasks", "train_samples", "test_samples", "held_out", "hidden", "epochs", "batch_size"):
            checks.at_least(name, getattr(self, name), 1)
        for name in ("curve_samples", "k", "steps", "tune_tasks", "tune_samples"):
            checks.at_least(name, getattr(self, name), 1)
        checks.above_zero("lr", self.lr)
        checks.above_zero("eps", self.eps)
        grid("stored", self.stored, 1)
        for name in ("ewc_lambda", "mbpa_lambda", "hebb_eta"):
            grid(name, getattr(self, name), 0)
        grid("hebb_beta", self.hebb_beta, 0, checks.decay)
        if max(self.stored) > self.train_samples:
            raise UserError(f"stored = {max(self.stored)} is more than train_samples = {self.train_samples}; lower it")
        if self.curve_samples > self.test_samples:
            raise UserError(
                f"curve_samples = {self.curve_samples} is more than test_samples = {self.test_samples}; lower it"
            )
        if self.tuned and self.tune_tasks > self.tasks:
            raise UserError(f"tune_tasks = {self.tune_tasks} is more than tasks = {self.tasks}; lower it")
        if self.tuned and self.tune_samples > self.held_out:
            raise UserError(f"tune_samples = {self.tune_samples} is more than held_out = {self.held_out}")

    def tested(self, task: int) -> int:
        """Return how many samples of each task so far are tested after ``task``, counted from 0."""
        return self.test_samples if task == self.tasks - 1 else self.curve_samples

    @property
    def tuned(self) -> bool:
        """Whether anything is left to choose."""
        grids = (self.ewc_lambda, self.mbpa_lambda, self.hebb_beta, self.hebb_eta)
        return any(len(grid) > 1 for grid in grids)

    def first(self) -> dict[str, dict[str, float]]:
        """Return the first value of every grid, by method."""
        values = {"ewc": {"lambda": self.ewc_lambda[0]}}
        for size in self.stored:
            values[f"mbpa-{size}"] = {"lr": self.mbpa_lambda[0]}
            values[f"hebb-{size}"] = {"beta": self.hebb_beta[0], "eta": self.hebb_eta[0]}
        return values


PAPER = {
    "ewc_lambda": "1000",
    "mbpa_rate": "absolute",
    "mbpa_lambda": "0.05",
    "steps": "5",
    "hebb_beta": "0.9",
    "hebb_eta": "0.2",
}
"""The paper's values (its appendix, Continual Learning)."""

SCALES: dict[Scale, PermutedSettings] = {
    "smoke": PermutedSettings(
        tasks=3,
        train_samples=400,
        test_samples=200,
        curve_samples=100,
        held_out=100,
        hidden=64,
        epochs=20,
        batch_size=32,
        lr=3e-3,
        stored=(25, 50),
        k=20,
        ewc_lambda=(10.0, 100.0, 1e3),
        tune_tasks=3,
        tune_samples=50,
    ),
    "small": PermutedSettings(
        test_samples=500, curve_samples=100, epochs=5, ewc_lambda=(1.0, 10.0, 100.0, 1e3), tune_samples=100
    ),
    "paper": PermutedSettings(),
}
"""Seconds on the digits of scikit-learn; under an hour for three seeds on two CPU cores; the paper's sizes on a GPU."""
