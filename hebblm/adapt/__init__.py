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
    from hebblm.adapt.methods import DYNAMIC_RULES, RULES, build_rule, hyperparameters, window_of
    from hebblm.adapt.names import (
        DEFAULT_METHODS,
        DYNAMIC,
        METHODS,
        OUR_METHODS,
        PAPER_METHODS,
        check_methods,
        named,
    )
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
    "DYNAMIC_RULES",
    "METHODS",
    "OUR_METHODS",
    "PAPER_METHODS",
    "RULES",
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
    "MethodSettings",
    "Mixture",
    "MixtureCacheConfig",
    "MixtureConfig",
    "MixtureGatedConfig",
    "MixtureHebbConfig",
    "MixtureHebbLearnedConfig",
    "MixtureMbpaConfig",
    "Rule",
    "Tempered",
    "TemperedConfig",
    "Unadapted",
    "build_rule",
    "check_methods",
    "hyperparameters",
    "named",
    "window_of",
]

__getattr__ = lazily(
    __name__,
    *("method_settings", "settings", "learned", "names"),
    *("methods", "adapter", "context", "gated", "hebb", "rules"),
)
