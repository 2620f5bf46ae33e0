"""Adaptation: equations, rules and adapters; knows no model, no file and no command line."""

from hebblm.adapt.adapter import ContextAdapter
from hebblm.adapt.context import Context, EvalBatch
from hebblm.adapt.gated import GatedMixture
from hebblm.adapt.hebb import Hebb
from hebblm.adapt.methods import (
    DEFAULT_METHODS,
    DYNAMIC,
    DYNAMIC_RULES,
    METHODS,
    PAPER_METHODS,
    RULES,
    build_rule,
    check_methods,
    hyperparameters,
)
from hebblm.adapt.rules import Cache, Interpolated, KnnLM, Mbpa, Mixture, Rule, Unadapted
from hebblm.adapt.settings import (
    CacheConfig,
    DynamicMixtureConfig,
    DynamicMixtureHebbConfig,
    HebbConfig,
    KnnConfig,
    MbpaConfig,
    MethodSettings,
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
    "PAPER_METHODS",
    "RULES",
    "Cache",
    "CacheConfig",
    "Context",
    "ContextAdapter",
    "DynamicMixtureConfig",
    "DynamicMixtureHebbConfig",
    "EvalBatch",
    "GatedMixture",
    "Hebb",
    "HebbConfig",
    "Interpolated",
    "KnnConfig",
    "KnnLM",
    "Mbpa",
    "MbpaConfig",
    "MethodSettings",
    "Mixture",
    "MixtureConfig",
    "MixtureGatedConfig",
    "MixtureHebbConfig",
    "MixtureMbpaConfig",
    "Rule",
    "Unadapted",
    "build_rule",
    "check_methods",
    "hyperparameters",
]
