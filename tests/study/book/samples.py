"""A folder of results of every kind, small enough to read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hebblm.report.render.result import Result
from hebblm.vision.result import KEYS
from recipes.bench.record import BenchResult

from ...unit.report.samples import sample_result
from ..bench.rows import adapt_row

COMMIT = "0123456789abcdef"
PROVENANCE = {
    "command": "python -m recipes.bench adapt",
    "commit": COMMIT,
    "versions": {"torch": "2.13.0"},
    "device": "cpu",
    "threads": 2,
    "cpu": "a processor",
    "seed": 1,
}
PERMUTED = {"mlp": 0.5, "ewc": 0.8, "mbpa-10": 0.9, "hebb-10": 0.85}


def within(*, tokens: int = 82_430, **losses: float) -> Result:
    """Return a result within Penn Treebank that says it scored ``tokens``, some of its losses
    replaced.
    """
    result = sample_result(400, source="ptb", target="ptb")
    methods = {
        name: replace(item, nll=losses.get(name.replace("+", "_"), item.nll))
        for name, item in result.methods.items()
    }
    model = {
        "embedding_dim": 200, "hidden_dim": 600, "layers": 2, "vocabulary_size": 10_000,
        "epochs": 16,
        "parameters": 4_576_400, "valid_perplexity": 85.7,
    }  # fmt: skip
    return replace(
        result, methods=methods, model=model, scenario=replace(result.scenario, tokens=tokens)
    )


def across(tokens: int = 82_430) -> Result:
    result = sample_result(400)
    return replace(result, scenario=replace(result.scenario, tokens=tokens))


def tuned() -> dict[str, Any]:
    """Return what hebblm-tune writes."""
    return {
        "schema": "hebblm-tuned/1",
        "values": {"mixture.theta": 1.5, "mbpa.lr": 5.0, "hebb.kernel_weight": "max"},
        "scenario": {"source": "ptb", "target": "ptb", "split": "valid", "tokens": 5000},
        "model": {},
        "provenance": {"command": "hebblm-tune --intra-domain ptb", "commit": None},
        "nll": {"lstm": 4.65, "mixture": 4.567},
        "tried": {
            "mixture": [{"mixture.theta": 1.5, "nll": 4.567}, {"mixture.theta": 9.0, "nll": "inf"}]
        },
    }


def readings(corpus: str) -> dict[str, Any]:
    """Return what ``python -m recipes.study readings`` writes."""
    effects = (
        ("default", "mixture", 4.5, 0.0, None, None),
        ("default", "hebb", 4.6, 0.0, None, None),
        ("larger eps", "hebb", 4.62, 0.02, 0.01, 0.03),
    )
    keys = ("reading", "method", "nll", "change", "low", "high")
    return {
        "schema": "hebblm-readings/1",
        "scenario": {"source": corpus, "target": corpus, "split": "valid", "tokens": 500},
        "settings": {"default": {}, "larger eps": {"mbpa.eps": 0.1}},
        "effects": [dict(zip(keys, effect, strict=True)) for effect in effects],
        "provenance": {"command": "python -m recipes.study readings", "commit": COMMIT},
    }


def permuted(**changes: Any) -> dict[str, Any]:
    """Return what ``hebblm-vision permuted-mnist`` writes."""

    def part(mean: float) -> dict[str, float]:
        return {"mean": mean, "std": 0.01}

    return {
        "schema": "hebblm-vision/1",
        "experiment": "permuted-mnist",
        "scale": "smoke",
        "data": {"name": "digits"},
        "settings": {
            "tasks": 2, "train_samples": 60, "test_samples": 20, "curve_samples": 8, "epochs": 3,
            "stored": [10],
        },
        "provenance": {**PROVENANCE, "command": "hebblm-vision permuted-mnist", "seeds": [1, 2]},
        "methods": {
            name: {
                "average_accuracy": part(mean),
                "forgetting": part(1 - mean),
                "backward_transfer": part(mean - 1),
                "curve": [part(1.0), part(mean)],
                "seeds": [{"average_accuracy": mean - 0.01}, {"average_accuracy": mean + 0.01}],
            }
            for name, mean in PERMUTED.items()
        },
        **changes,
    }  # fmt: skip


def online(**right: float) -> dict[str, Any]:
    """Return what ``hebblm-vision online`` writes on CIFAR-100, every accuracy of a method the
    same.
    """
    point = {
        name: {key: {"mean": mean, "std": None} for key in KEYS} for name, mean in right.items()
    }
    network = {"run": "a", "held_out_top1": 0.5, "old_classes": [1, 2]}
    return {
        "schema": "hebblm-vision/1",
        "experiment": "online",
        "scale": "small",
        "data": {"name": "CIFAR-100"},
        "settings": {
            "backbone": "resnet50-w16",
            "pretrainings": "shared",
            "pretraining": {"epochs": [8]},
            "adaptation": {},
        },
        "provenance": {**PROVENANCE, "command": "hebblm-vision online", "seeds": [1]},
        "seeds": [{"seed": 1, "pretraining": network}],
        "methods": {
            name: {
                "conditions": {
                    "50": {
                        **scores,
                        "curve": [{"at": 100, **scores}, {"at": 200, **scores}],
                        "seeds": [{"seed": 1, **dict.fromkeys(KEYS, right[name])}],
                    }
                }
            }
            for name, scores in point.items()
        },
    }


def write_results(root: Path) -> Path:
    """Write one file of every kind, and one of a kind that nobody knows."""
    within().save(root / "intra-ptb")
    within(tokens=1000).save(root / "intra-ptb-part")
    across().save(root / "cross")
    write(root / "tuned-ptb" / "tuned.json", tuned())
    write(
        root / "online" / "result.json", online(parametric=0.5, mixture=0.52, mbpa=0.55, hebb=0.54)
    )
    write(root / "permuted" / "result.json", permuted())
    write(root / "odd" / "result.json", permuted(experiment="juggling"))
    write(root / "notes.json", {"schema": "diary/7", "text": "<b>dear"})
    BenchResult("adapt", PROVENANCE, {}, (adapt_row(10_000, 5, naive=100, fast=0.5),), True).save(
        root / "bench" / "adapt.json"
    )
    return root


def write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
