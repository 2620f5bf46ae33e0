"""The methods: one record each says what a method is called, how it is built and what it rests on.

Loading this module loads no torch; building a method does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hebblm.adapt.checks import Share
from hebblm.adapt.method_settings import MethodSettings, dotted
from hebblm.adapt.settings import MixtureConfig
from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    from hebblm.adapt.hebb import Hebb
    from hebblm.adapt.rules import Rule

DYNAMIC = "dynamic"
EVERY = "all"
Origin = Literal["paper", "baseline", "ours", "variant"]


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Args:
        name: on the command line and in results.
        label: in tables and plots.
        origin: one of the paper's, a baseline it leaves out, ours, or a variant of the paper's for an ablation.
        build: returns its rule.
        settings: sections of the settings that it depends on.
        parts: methods whose values it takes over when it is tuned.
        moving: it reads the moving states of dynamic evaluation, a base of its own.
    """

    name: str
    label: str
    origin: Origin
    build: Callable[[MethodSettings], Rule]
    settings: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    moving: bool = False

    def rule(self, settings: MethodSettings) -> Rule:
        """Return its rule, at its temperature."""
        from hebblm.adapt.rules import Tempered

        rule, temperature = self.build(settings), settings.tempered.of(self.name)
        return rule if temperature == 1 else Tempered(rule, temperature)

    def hyperparameters(self, settings: MethodSettings) -> dict[str, Any]:
        """Return the settings that it depends on, as JSON."""
        values = {section: asdict(getattr(settings, section)) for section in self.settings}
        found = values[self.settings[0]] if len(self.settings) == 1 else values
        temperature = settings.tempered.of(self.name)
        return found if temperature == 1 else {**found, "tempered": {dotted(self.name): temperature}}


def _unadapted(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import Unadapted

    return Unadapted()


def _cache(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import Cache, Unadapted, remembering

    return remembering(Cache, settings.cache, Unadapted())


def _knn(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import KnnLM, Unadapted, remembering

    return remembering(KnnLM, settings.knn, Unadapted())


def _mixture(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import LogitSum, Mixture, Unadapted, remembering

    config = settings.mixture
    return remembering(Mixture, config, Unadapted()) if config.form == "linear" else LogitSum(config)


def _mbpa(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import Mbpa

    return Mbpa(settings.mbpa)


def _mbpa_absolute(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import Mbpa

    return Mbpa(settings.mbpa_absolute.over(settings.mbpa))


def _mbpa_guarded(settings: MethodSettings) -> Rule:
    from hebblm.adapt.rules import Mbpa

    return Mbpa(settings.mbpa_guarded.over(settings.mbpa))


def _hebb(settings: MethodSettings, variant: str | None = None) -> Hebb:
    from hebblm.adapt.hebb import Hebb

    return Hebb(settings.hebb, settings.mbpa, variant)


def _hebb_literal(settings: MethodSettings) -> Rule:
    return _hebb(replace(settings, hebb=replace(settings.hebb, gate="literal")))


def _hebb_learned(settings: MethodSettings) -> Rule:
    """Return Hebb with a learned weight for each range of counts."""
    from hebblm.adapt.hebb import Hebb

    config = settings.hebb_learned
    return Hebb(config.over(settings.hebb), settings.mbpa, steps=config.steps)


def _gated(settings: MethodSettings) -> Rule:
    from hebblm.adapt.gated import GatedMixture

    return GatedMixture(settings.mixture_gated)


def _beside_mixture(settings: MethodSettings, other: Rule, weight: Share) -> Rule:
    from hebblm.adapt.rules import Interpolated

    return Interpolated(_mixture(settings), other, weight)


def _mixture_cache(settings: MethodSettings) -> Rule:
    """Return the continuous cache over Mixture."""
    from hebblm.adapt.rules import Cache, remembering

    return remembering(Cache, settings.mixture_cache, _mixture(settings))


def _over_dynamic(settings: MethodSettings) -> MethodSettings:
    """Return settings whose Mixture and cache over it are those for the states of dynamic evaluation."""
    config = settings.dynamic_mixture
    return replace(
        settings,
        mixture=MixtureConfig(config.theta, config.gamma, scale=config.scale),
        mixture_cache=settings.dynamic_mixture_cache,
    )


_RECORDS = (
    Method("lstm", "LSTM", "paper", _unadapted),
    Method(DYNAMIC, "Dynamic eval.", "baseline", _unadapted, moving=True),
    Method("cache", "Cache", "baseline", _cache, ("cache",)),
    Method("knn", "kNN-LM", "baseline", _knn, ("knn",)),
    Method("mixture", "Mixture", "paper", _mixture, ("mixture",)),
    Method("mbpa", "MbPA", "paper", _mbpa, ("mbpa",)),
    Method("hebb", "Hebb", "paper", _hebb, ("mbpa", "hebb"), parts=("mbpa",)),
    Method(
        "mixture+mbpa",
        "Mixture+MbPA",
        "paper",
        lambda s: _beside_mixture(s, _mbpa(s), s.mixture_mbpa.weight),
        ("mixture", "mbpa", "mixture_mbpa"),
        parts=("mixture", "mbpa"),
    ),
    Method(
        "mixture+hebb",
        "Mixture+Hebb",
        "paper",
        lambda s: _beside_mixture(s, _hebb(s), s.mixture_hebb.weight),
        ("mixture", "mbpa", "hebb", "mixture_hebb"),
        parts=("mixture", "hebb"),
    ),
    Method("mbpa-absolute", "MbPA-absolute", "ours", _mbpa_absolute, ("mbpa_absolute", "mbpa")),
    Method("mbpa-guarded", "MbPA-guarded", "ours", _mbpa_guarded, ("mbpa_guarded", "mbpa")),
    Method("mixture-gated", "Mixture-gated (ours)", "ours", _gated, ("mixture_gated",)),
    Method(
        "mixture+cache",
        "Mixture+Cache (ours)",
        "ours",
        _mixture_cache,
        ("mixture", "mixture_cache"),
        parts=("mixture",),
    ),
    Method(
        "hebb-learned",
        "Hebb-learned (ours)",
        "ours",
        _hebb_learned,
        ("mbpa", "hebb", "hebb_learned"),
        parts=("hebb",),
    ),
    Method(
        "mixture+hebb-learned",
        "Mixture+Hebb-learned (ours)",
        "ours",
        lambda s: _beside_mixture(s, _hebb_learned(s), s.mixture_hebb_learned.weight),
        ("mixture", "mbpa", "hebb", "hebb_learned", "mixture_hebb_learned"),
        parts=("mixture", "hebb-learned"),
    ),
    Method(
        "dynamic+mixture",
        "Dynamic+Mixture (ours)",
        "ours",
        lambda s: _mixture(_over_dynamic(s)),
        ("dynamic_mixture",),
        parts=(DYNAMIC,),
        moving=True,
    ),
    Method(
        "dynamic+mixture+hebb",
        "Dynamic+Mixture+Hebb (ours)",
        "ours",
        lambda s: _beside_mixture(_over_dynamic(s), _hebb(s), s.dynamic_mixture_hebb.weight),
        ("dynamic_mixture", "mbpa", "hebb", "dynamic_mixture_hebb"),
        parts=("dynamic+mixture", "hebb"),
        moving=True,
    ),
    Method(
        "dynamic+mixture+cache",
        "Dynamic+Mixture+Cache (ours)",
        "ours",
        lambda s: _mixture_cache(_over_dynamic(s)),
        ("dynamic_mixture", "dynamic_mixture_cache"),
        parts=("dynamic+mixture",),
        moving=True,
    ),
    Method("hebb-v1", "Hebb-v1", "variant", lambda s: _hebb(s, "v1"), ("mbpa", "hebb")),
    Method("hebb-v2", "Hebb-v2", "variant", lambda s: _hebb(s, "v2"), ("mbpa", "hebb")),
    Method("hebb-v3", "Hebb-v3", "variant", lambda s: _hebb(s, "v3"), ("mbpa", "hebb")),
    Method("hebb-literal", "Hebb-literal", "variant", _hebb_literal, ("mbpa", "hebb")),
)
METHODS = {method.name: method for method in _RECORDS}
"""All methods by name, in the order of the tables."""
STATIC_METHODS = tuple(method.name for method in _RECORDS if not method.moving)
"""Those that read the hidden states of the base as trained, or as it learns for all of them alike."""
DYNAMIC_METHODS = tuple(method.name for method in _RECORDS if method.moving)
PAPER_METHODS = tuple(method.name for method in _RECORDS if method.origin == "paper")
DEFAULT_METHODS = tuple(method.name for method in _RECORDS if method.origin in ("paper", "baseline"))
TUNABLE = tuple(method.name for method in _RECORDS if method.origin != "variant")
"""Those with values of their own to tune."""
OUR_METHODS = tuple(method.name for method in _RECORDS if method.origin == "ours")


def named(text: str) -> list[str]:
    """Return the methods of a comma-separated list; ``all`` stands for the default ones and those beyond the paper.

    Raises:
        UserError: an unknown or repeated method.
    """
    names = [name.strip() for name in text.split(",")]
    names = [*DEFAULT_METHODS, *OUR_METHODS] if names == [EVERY] else names
    check_methods(names)
    return names


def check_methods(names: list[str]) -> None:
    """Refuse an unknown or repeated method.

    Raises:
        UserError: naming it and the known ones.
    """
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS, f"choose from {', '.join(METHODS)}, or {EVERY} alone")
    if len(set(names)) < len(names) or not names:
        raise UserError(f"methods {','.join(names)!r} must name each method once, at least one")


def with_parts(names: Iterable[str]) -> set[str]:
    """Return methods with all whose values they take over when they are tuned.

    Raises:
        UserError: a method that has no values of its own.
    """
    found: set[str] = set()
    for name in names:
        if name not in TUNABLE:
            raise UserError(f"{name} has no values of its own to tune; choose from {', '.join(TUNABLE)}")
        found |= {name, *with_parts(METHODS[name].parts)}
    return found
