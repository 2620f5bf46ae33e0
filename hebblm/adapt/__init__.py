"""Adaptation: equations, rules and adapters; knows no model, no file and no command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.lazy import lazily

if TYPE_CHECKING:
    from hebblm.adapt.adapter import ContextAdapter
    from hebblm.adapt.context import Context, EvalBatch
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
    from hebblm.adapt.methods.best import Best, BestConfig
    from hebblm.adapt.methods.cache import Cache, CacheConfig, MixtureCacheConfig
    from hebblm.adapt.methods.combine import (
        MixtureHebbConfig,
        MixtureHebbLearnedConfig,
        MixtureMbpaConfig,
        Tempered,
    )
    from hebblm.adapt.methods.dynamic import (
        DynamicMixtureCacheConfig,
        DynamicMixtureConfig,
        DynamicMixtureHebbConfig,
    )
    from hebblm.adapt.methods.gated import GatedMixture, MixtureGatedConfig
    from hebblm.adapt.methods.hebb import Hebb, HebbConfig, HebbLearnedConfig
    from hebblm.adapt.methods.knn import KnnConfig, KnnLM
    from hebblm.adapt.methods.lstm import Unadapted
    from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
    from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
    from hebblm.adapt.methods.remembering import Interpolated
    from hebblm.adapt.methods.rule import Needs, Rule
    from hebblm.adapt.settings import MethodSettings, TemperedConfig

__all__ = [
    "DEFAULT_METHODS",
    "DYNAMIC",
    "DYNAMIC_METHODS",
    "METHODS",
    "OUR_METHODS",
    "PAPER_METHODS",
    "STATIC_METHODS",
    "Best",
    "BestConfig",
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
        *("settings", "methods", "methods.rule", "methods.lstm", "methods.remembering", "methods.cache"),
        *(
            "methods.knn",
            "methods.mixture",
            "methods.mbpa",
            "methods.hebb",
            "methods.gated",
            "methods.combine",
            "methods.best",
        ),
        *("adapter", "context"),
    )
