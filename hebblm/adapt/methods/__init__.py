"""The methods, one file each: its settings, its rule, and the record that says how to build it and
what it needs.

Loading this package loads no torch; using a rule does.
"""

from __future__ import annotations

import runpy
from collections.abc import Collection, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from hebblm.adapt.methods.base import DYNAMIC as DYNAMIC
from hebblm.adapt.methods.base import DYNAMIC_EVALUATION, LSTM
from hebblm.adapt.methods.best import BEST, BEST_OF_BOTH, DYNAMIC_BEST
from hebblm.adapt.methods.cache import CACHE
from hebblm.adapt.methods.combine import MIXTURE_HEBB, MIXTURE_MBPA
from hebblm.adapt.methods.hebb import HEBB, VARIANTS
from hebblm.adapt.methods.knn import KNN
from hebblm.adapt.methods.mbpa import MBPA, MBPA_ABSOLUTE
from hebblm.adapt.methods.mixture import MIXTURE
from hebblm.adapt.methods.ngram import NGRAM, SUFFIX, beside_ngram
from hebblm.adapt.methods.predictor import Ensemble
from hebblm.adapt.methods.predictor import Method as Method
from hebblm.adapt.settings import Section
from hebblm.errors import UserError
from hebblm.runtime.spelling import unknown

EVERY = "all"
WITH_NGRAM = ("lstm", "ngram", "best", "dynamic+best", "best-of-both")
"""Methods that take no ``+ngram``: they have one, or become the n-gram itself."""
_RECORDS: tuple[Method, ...] = (
    *(LSTM, DYNAMIC_EVALUATION, CACHE, KNN, MIXTURE, MBPA, HEBB, MIXTURE_MBPA, MIXTURE_HEBB),
    *(MBPA_ABSOLUTE, NGRAM, BEST, DYNAMIC_BEST, *VARIANTS),
)


class _ByName(dict[str, Method | Ensemble]):
    """Methods by name; ``X+ngram`` is any method X mixed with the n-gram, made on first use."""

    def __missing__(self, name: str) -> Method:
        method = self.get(name.removesuffix(SUFFIX)) if name in self else None
        if not isinstance(method, Method):
            raise KeyError(name)
        return beside_ngram(method)

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        stem = (
            name.removesuffix(SUFFIX) if isinstance(name, str) and name.endswith(SUFFIX) else None
        )
        return stem not in WITH_NGRAM and super().__contains__(stem)


METHODS = cast(dict[str, Method], _ByName({method.name: method for method in _RECORDS}))
"""All methods by name, in the order of the tables."""
_OWN = frozenset(METHODS)
ENSEMBLES = {BEST_OF_BOTH.name: BEST_OF_BOTH}
"""Mixtures of methods over different bases, by name; only evaluations know them."""
EVALUATED: dict[str, Method | Ensemble] = _ByName({**METHODS, **ENSEMBLES})
ALIASES = {"base": "lstm", "base+ngram": "ngram", "lstm+ngram": "ngram"}
"""Other names: the unadapted base need not be an LSTM."""
STATIC_METHODS = tuple(method.name for method in _RECORDS if not method.uses_dynamic_base)
"""Methods that read the hidden states of the trained base, or of a base that learns for all of them
alike.
"""
DYNAMIC_METHODS = tuple(method.name for method in _RECORDS if method.uses_dynamic_base)
PAPER_METHODS = tuple(method.name for method in _RECORDS if method.origin == "paper")
PUBLISHED = tuple(method.name for method in _RECORDS if method.origin in ("paper", "baseline"))
"""The paper's methods and the rivals that it leaves out."""
DEFAULT_METHODS = (*PUBLISHED, BEST.name)
TUNABLE = tuple(method.name for method in _RECORDS if method.origin != "variant" and method.tuned)
"""Methods with values to tune."""
OUR_METHODS = tuple(method.name for method in _RECORDS if method.origin == "ours")


SECTIONS: dict[str, type[Section]] = {
    kind.section: kind for record in _RECORDS for kind in record.settings
}
"""The sections of all methods' settings, by name."""
SOURCES: dict[str, Path] = {}
"""The files of methods that users registered."""
ENTRY_POINTS = "hebblm.methods"


def register(method: Method) -> Method:
    """Register a method of your own: commands, readers and evaluations then know it by its name.

    Args:
        method: record of the method.

    Returns:
        The record, unchanged.

    Raises:
        UserError: another method or section of settings has its name.
    """
    if method.name in EVALUATED or method.name in (*ALIASES, EVERY):
        raise UserError(f"a method {method.name!r} is there already; give yours another name")
    for kind in method.settings:
        if SECTIONS.get(kind.section, kind) is not kind:
            raise UserError(
                f"a section {kind.section!r} of settings is there already; give yours another name"
            )
    SECTIONS.update({kind.section: kind for kind in method.settings})
    METHODS[method.name] = EVALUATED[method.name] = method
    # a class or a partial has no code
    if (code := getattr(method.predictor, "__code__", None)) is not None:
        SOURCES[method.name] = Path(code.co_filename)
    return method


def is_registered(name: str) -> bool:
    """Return whether a method did not come with the package; ``X+ngram`` is as its X."""
    stem = name.removesuffix(SUFFIX)
    return stem in METHODS and stem not in _OWN


def load_plugin(path: Path) -> None:
    """Run the user's Python file, which registers methods.

    Raises:
        UserError: the file cannot be read, or fails.
    """
    try:
        runpy.run_path(str(path), run_name="hebblm_plugin")
    except UserError:
        raise
    except Exception as error:  # the file may raise anything
        raise UserError(f"plugin {path} fails: {type(error).__name__}: {error}") from error


def _load_installed() -> bool:
    """Load the methods of installed packages, and return whether there are such packages."""
    points = entry_points(group=ENTRY_POINTS)
    for point in points:
        point.load()
    return bool(points)


def named(text: str, known: Collection[str] = METHODS) -> list[str]:
    """Return the methods of a comma-separated list; ``all`` means the default ones and those beyond
    the paper.
    """
    names = [unaliased(name.strip()) for name in text.split(",")]
    names = (
        [name for name in known if EVALUATED[name].origin != "variant"]
        if names == [EVERY]
        else names
    )
    check_methods(names, known, f", or {EVERY} alone")
    return names


def with_ensembled(names: Iterable[str]) -> list[str]:
    """Return methods, and before each ensemble the methods that it mixes."""
    mixed = (
        part
        for name in names
        for part in (*(ENSEMBLES[name].parts if name in ENSEMBLES else ()), name)
    )
    return list(dict.fromkeys(mixed))


def unaliased(name: str) -> str:
    """Return the name of a method in results: ``base`` is ``lstm``, whatever the base is."""
    return ALIASES.get(name, name)


def check_methods(names: list[str], known: Collection[str] = METHODS, among: str = "") -> None:
    """Refuse an unknown or repeated method.

    ``among`` names further choices for the message.
    """
    for name in names:
        if name in ENSEMBLES and name not in known:
            raise UserError(
                f"{name} works in evaluations only; use {' or '.join(ENSEMBLES[name].parts)}"
            )
        if name not in known and not (_load_installed() and name in METHODS):
            shown = ["base" if method == "lstm" else method for method in known]
            raise unknown("method", name, shown, f"choose from {', '.join(shown)}{among}")
    if len(set(names)) < len(names) or not names:
        raise UserError(f"methods {','.join(names)!r} must name each method once, at least one")


def with_parts(names: Iterable[str]) -> set[str]:
    """Return methods with all methods whose tuned values they use."""
    parts: set[str] = set()
    for name in names:
        if name not in TUNABLE:
            raise UserError(
                f"{name} has no values of its own to tune; choose from {', '.join(TUNABLE)}"
            )
        parts |= {name, *with_parts(METHODS[name].parts)}
    return parts
