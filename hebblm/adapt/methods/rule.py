"""Interfaces of a method: its rule, what that needs, and the record that says how it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from hebblm.adapt.section import Section
from hebblm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.grid import Axes, Grid
    from hebblm.adapt.methods.mbpa import MbpaConfig
    from hebblm.adapt.settings import MethodSettings

L_co = TypeVar("L_co", covariant=True)
Origin = Literal["paper", "baseline", "ours", "variant"]


class Rule(Protocol):
    """A pure map from a mini-batch to log-probabilities."""

    @property
    def name(self) -> str:
        """Name of what it predicts with, the same in every version and for all settings; shares are saved under it."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V) log-probabilities in nats."""

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,): what gathering from :meth:`log_probs` gives, for less."""

    @property
    def needs(self) -> Needs:
        """Requirements of the rule."""


class Learner(Protocol[L_co]):
    """Part of a rule that learns from the tokens already scored how to mix what it is made of."""

    @property
    def learned_as(self) -> str:
        """Name and version under which its shares are saved; a change of what the numbers mean needs a new version."""

    @property
    def initial(self) -> L_co:
        """Share before anything was scored."""

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return what each of ``targets`` (N,) says of the shares, (N,) or (N, E) float64."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a rule: what is at hand, or counted, because of it; of a combination, ``a | b``.

    Args:
        retrieval: neighbours from the memory.
        window: how many of the latest pairs it looks back at.
        descents: the MbPA that it rests on.
        shares: the rules whose shares are learned, those within others first.
    """

    retrieval: bool = False
    window: int = 0
    descents: tuple[MbpaConfig, ...] = ()
    shares: tuple[Learner[Any], ...] = ()

    def __or__(self, other: Needs) -> Needs:
        descents = dict.fromkeys((*self.descents, *other.descents))
        shares = dict.fromkeys((*self.shares, *other.shares))
        window = max(self.window, other.window)
        return Needs(self.retrieval or other.retrieval, window, tuple(descents), tuple(shares))


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
        tried: returns those that are tried point by point; a share ``gamma`` among them is mixed in from losses.
        look: its colour in plots, and its line where that is not whole; empty for a spare one.
    """

    name: str
    label: str
    origin: Origin
    rule: Callable[[MethodSettings], Rule]
    settings: tuple[type[Section], ...] = ()
    parts: tuple[str, ...] = ()
    moving: bool = False
    tuned: bool = True
    tried: Callable[[MethodSettings, Grid], Axes] | None = None
    look: tuple[str, ...] = ()

    def rates(self, settings: MethodSettings) -> str:
        """Return the learning rates by which it diverges where they are too large, by dotted name."""
        found = ["dynamic.lr"] if self.moving else []
        for values in map(settings.__getitem__, self.settings):
            if hasattr(values, "lr") and getattr(values, "optimizer", "sgd") != "newton":
                found.append(f"{values.section}.lr")
        return ", ".join(found) or "base.lr"

    def check_keys(self, settings: MethodSettings) -> None:
        """Refuse a method that adapts the head where memories keep the states of another layer.

        Raises:
            UserError: naming it.
        """
        if self.rule(settings).needs.descents or self.origin == "variant":
            raise UserError(f"{self.name} adapts the head with what enters it; use --key last, or knn or mixture")

    def hyperparameters(self, settings: MethodSettings) -> dict[str, Any]:
        """Return the settings that it depends on, as JSON."""
        values = {kind.section: asdict(settings[kind]) for kind in self.settings}
        return next(iter(values.values())) if len(values) == 1 else values


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Record of a mixture of methods that read different bases, so that no mini-batch has them all.

    Args:
        name: on the command line and in results.
        label: in tables and plots.
        origin: as of a :class:`Method`.
        parts: the methods, by name.
        look: as of a :class:`Method`.
    """

    name: str
    label: str
    origin: Origin
    parts: tuple[str, ...]
    look: tuple[str, ...]


def dotted(method: str) -> str:
    """Return how a method is written in the name of a setting: ``mixture+hebb`` is ``mixture_hebb``."""
    return method.replace("+", "_").replace("-", "_")
