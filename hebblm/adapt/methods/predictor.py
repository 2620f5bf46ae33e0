"""Interfaces of a method: its rule, and the record that says how to build, tune and draw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from hebblm.adapt.requirements import HasRequirements
from hebblm.adapt.requirements import Requirements as Requirements
from hebblm.adapt.settings import MethodSettings, Section
from hebblm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.grid import Axes, Grid

Origin = Literal["paper", "baseline", "ours", "variant"]


class Predictor(HasRequirements, Protocol):
    """A pure map from a mini-batch to log-probabilities."""

    @property
    def name(self) -> str:
        """Name of the rule, the same in every version and for all settings; shares are saved under
        it.
        """

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return log-probabilities (N, V) in nats."""

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,): the same as :meth:`log_probs`, at less
        cost.
        """


@runtime_checkable
class Mixing(Predictor, Protocol):
    """A rule that is ``sum_c w_c P_c`` of others."""

    @property
    def predictors(self) -> Sequence[Predictor]:
        """The C mixed rules."""

    def log_mixture_weights(self, batch: EvalBatch) -> Tensor:
        """log w, (N, C) or (1, C) float64."""


@dataclass(frozen=True, slots=True)
class Method:
    """Record of a method.

    Args:
        name: name on the command line and in results.
        label: name in tables and plots.
        origin: paper, baseline (one that the paper leaves out), ours, or variant (of the paper's,
            for an ablation).
        predictor: returns its rule.
        settings: sections of the settings that it depends on.
        parts: methods whose tuned values it uses.
        uses_dynamic_base: whether it reads the changing states of dynamic evaluation, which has its
            own base.
        tuned: whether it has its own values to tune on validation text.
        search_space: returns the values to try point by point; a share ``gamma`` among them is
            mixed in from losses.
        plot_style: its colour in plots, and its line style if not solid; empty for a spare one.
    """

    name: str
    label: str
    origin: Origin
    predictor: Callable[[MethodSettings], Predictor]
    settings: tuple[type[Section], ...] = ()
    parts: tuple[str, ...] = ()
    uses_dynamic_base: bool = False
    tuned: bool = True
    search_space: Callable[[MethodSettings, Grid], Axes] | None = None
    plot_style: tuple[str, ...] = ()

    def rates(self, settings: MethodSettings) -> str:
        """Learning rates, by dotted name, that make it diverge if they are too large."""
        names = ["dynamic.lr"] if self.uses_dynamic_base else []
        for values in map(settings.__getitem__, self.settings):
            # gates do not diverge
            own_rate = hasattr(values, "lr") and values.section not in ("best", "ngram")
            if own_rate and getattr(values, "optimizer", "sgd") != "newton":
                names.append(f"{values.section}.lr")
        return ", ".join(names) or "base.lr"

    def check_keys(self, settings: MethodSettings) -> None:
        """Refuse a method that adapts the head if memories keep the states of another layer."""
        if self.predictor(settings).requirements.descents or self.origin == "variant":
            raise UserError(
                f"{self.name} adapts the output layer and needs its input as keys; use key=last, "
                "knn or mixture"
            )

    def hyperparameters(self, settings: MethodSettings) -> dict[str, Any]:
        """Return the settings that it depends on, as JSON."""
        values = {kind.section: asdict(settings[kind]) for kind in self.settings}
        return next(iter(values.values())) if len(values) == 1 else values


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Record of a mixture of methods that read different bases, so that no mini-batch has them all.

    Its fields are those of a :class:`Method`; ``parts`` names the methods.
    """

    name: str
    label: str
    origin: Origin
    parts: tuple[str, ...]
    plot_style: tuple[str, ...]


def dotted(method: str) -> str:
    """Return a method's name within the name of a setting: ``mixture+hebb`` is ``mixture_hebb``."""
    return method.replace("+", "_").replace("-", "_")
