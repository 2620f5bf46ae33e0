"""Interfaces of a method: its rule, and the record that says how it is built, tuned and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from hebblm.adapt.needs import Needing
from hebblm.adapt.needs import Needs as Needs
from hebblm.adapt.settings import MethodSettings, Section
from hebblm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.grid import Axes, Grid

Origin = Literal["paper", "baseline", "ours", "variant"]


class Rule(Needing, Protocol):
    """A pure map from a mini-batch to log-probabilities."""

    @property
    def name(self) -> str:
        """Name of what it predicts with, the same in every version and for all settings; shares are saved under it."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Log-probabilities (N, V) in nats."""

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Loss (N,) in nats of ``targets`` (N,): what gathering from :meth:`log_probs` gives, for less."""


@runtime_checkable
class Mixing(Rule, Protocol):
    """A rule that is ``sum_c w_c P_c`` of others."""

    @property
    def rules(self) -> Sequence[Rule]:
        """The others, C."""

    def log_shares(self, batch: EvalBatch) -> Tensor:
        """log w, (N, C) or (1, C) float64."""


@dataclass(frozen=True, slots=True)
class Method:
    """Record of a method.

    Args:
        name: on the command line and in results.
        label: in tables and plots.
        origin: one of the paper's, a baseline it leaves out, ours, or a variant of the paper's for an ablation.
        rule: returns its rule.
        settings: sections of the settings that it depends on.
        parts: methods whose values it takes over when it is tuned.
        moving: it reads the moving states of dynamic evaluation, a base of its own.
        tuned: it has values of its own that are found on validation text.
        search_space: returns those that are tried point by point; a share ``gamma`` among them is mixed in from losses.
        plot_style: its colour in plots, and its line where that is not whole; empty for a spare one.
    """

    name: str
    label: str
    origin: Origin
    rule: Callable[[MethodSettings], Rule]
    settings: tuple[type[Section], ...] = ()
    parts: tuple[str, ...] = ()
    moving: bool = False
    tuned: bool = True
    search_space: Callable[[MethodSettings, Grid], Axes] | None = None
    plot_style: tuple[str, ...] = ()

    def rates(self, settings: MethodSettings) -> str:
        """Learning rates by which it diverges where they are too large, by dotted name."""
        names = ["dynamic.lr"] if self.moving else []
        for values in map(settings.__getitem__, self.settings):
            own_rate = hasattr(values, "lr") and values.section not in ("best", "ngram")  # gates do not diverge
            if own_rate and getattr(values, "optimizer", "sgd") != "newton":
                names.append(f"{values.section}.lr")
        return ", ".join(names) or "base.lr"

    def check_keys(self, settings: MethodSettings) -> None:
        """Refuse a method that adapts the head where memories keep the states of another layer."""
        if self.rule(settings).needs.descents or self.origin == "variant":
            raise UserError(f"{self.name} adapts the head with what enters it; use --key last, or knn or mixture")

    def hyperparameters(self, settings: MethodSettings) -> dict[str, Any]:
        """Settings that it depends on, as JSON."""
        values = {kind.section: asdict(settings[kind]) for kind in self.settings}
        return next(iter(values.values())) if len(values) == 1 else values


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Record of a mixture of methods that read different bases, so that no mini-batch has them all.

    Its fields are as of a :class:`Method`; ``parts`` names the methods.
    """

    name: str
    label: str
    origin: Origin
    parts: tuple[str, ...]
    plot_style: tuple[str, ...]


def dotted(method: str) -> str:
    """A method as the name of a setting writes it: ``mixture+hebb`` is ``mixture_hebb``."""
    return method.replace("+", "_").replace("-", "_")
