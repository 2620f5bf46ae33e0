"""Adaptation: equations, rules and adapters; knows no model, no file and no command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.lazy import lazily

if TYPE_CHECKING:
    from hebblm.adapt.adapter import ContextAdapter
    from hebblm.adapt.context import Context, EvalBatch
    from hebblm.adapt.gated import GatedMixture
    from hebblm.adapt.hebb import Hebb
    from hebblm.adapt.learned import HebbLearnedConfig, MixtureHebbLearnedConfig
    from hebblm.adapt.method_settings import MethodSettings, TemperedConfig
    from hebblm.adapt.methods import (
        DEFAULT_METHODS,
        DYNAMIC,
        DYNAMIC_METHODS,
        METHODS,
        OUR_METHODS,
        PAPER_METHODS,
        STATIC_METHODS,
        Method,
        check_methods,
        named,
    )
    from hebblm.adapt.needs import Needs
    from hebblm.adapt.rules import Cache, Interpolated, KnnLM, Mbpa, Mixture, Rule, Tempered, Unadapted
    from hebblm.adapt.settings import (
        CacheConfig,
        DynamicMixtureCacheConfig,
        DynamicMixtureConfig,
        DynamicMixtureHebbConfig,
        HebbConfig,
        KnnConfig,
        MbpaConfig,
        MixtureCacheConfig,
        MixtureConfig,
        MixtureGatedConfig,
        MixtureHebbConfig,
        MixtureMbpaConfig,
    )

__all__ = [
    "DEFAULT_METHODS",
    "DYNAMIC",
    "DYNAMIC_METHODS",
    "METHODS",
    "OUR_METHODS",
    "PAPER_METHODS",
    "STATIC_METHODS",
    "Cache",
    "CacheConfig",
    "Context",
    "ContextAdapter",
    "DynamicMixtureCacheConfig",
    "DynamicMixtureConfig",
    "DynamicMixtureHebbConfig",
    "EvalBatch",
    "GatedMixture",
    "Hebb",
    "HebbConfig",
    "HebbLearnedConfig",
    "Interpolated",
    "KnnConfig",
    "KnnLM",
    "Mbpa",
    "MbpaConfig",
    "Method",
    "MethodSettings",
    "Mixture",
    "MixtureCacheConfig",
    "MixtureConfig",
    "MixtureGatedConfig",
    "MixtureHebbConfig",
    "MixtureHebbLearnedConfig",
    "MixtureMbpaConfig",
    "Needs",
    "Rule",
    "Tempered",
    "TemperedConfig",
    "Unadapted",
    "check_methods",
    "named",
]

if not TYPE_CHECKING:  # a name that is none stays an error for the type checker
    __getattr__ = lazily(
        __name__,
        *("method_settings", "settings", "learned", "methods", "needs"),
        *("adapter", "context", "gated", "hebb", "rules"),
    )
