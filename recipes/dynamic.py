"""Tuning of dynamic evaluation beyond rate and decay: its epsilon and its segment, too, on validation text.

Nearly all mean squares of gradients lie far below epsilon, so that rate over epsilon is the rate of plain descent; the
grid holds that ratio. What is done is kept: the same command goes on.

Usage:
    python -m recipes.dynamic --json recipes/defaults/dynamic.json
    python -m recipes.dynamic --json recipes/defaults/dynamic-texts.json --tokens 20000 --segments 50 \
        --texts ptb wt2 wt2-to-ptb --epsilons 1e-3 1e-4 --decays 0.002 0.02 0.1
"""

from __future__ import annotations

import argparse
import math
import sys
from itertools import product
from pathlib import Path
from typing import Any

import hebblm
from hebblm.files import read_json, write_json
from hebblm.provenance import provenance

RATIOS = (2.0, 4.0, 8.0, 16.0)  # of rate to epsilon


def loss(text: str, tokens: int, settings: dict[str, Any]) -> float:
    """Return the loss of dynamic evaluation, nats a word."""
    where = {"cross_domain" if "-to-" in text else "intra_domain": text}
    result = hebblm.evaluate(
        **where,
        methods=["lstm", "dynamic"],
        settings=settings,
        split="valid",
        max_tokens=tokens,
        update_every=settings["dynamic.segment"],
    )
    return result.methods["dynamic"].nll


def main() -> None:
    """Measure every point that the file does not hold yet, and say which has the least mean loss over the texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--texts", nargs="+", default=["ptb"])
    parser.add_argument("--tokens", type=int, default=5_000)
    parser.add_argument("--segments", type=int, nargs="+", default=[50, 20, 5])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1e-3, 1e-4, 2e-5])
    parser.add_argument("--decays", type=float, nargs="+", default=[0.02, 0.1, 0.3])
    options = parser.parse_args()
    rows: list[dict[str, Any]] = read_json(options.json)["rows"] if options.json.exists() else []
    done = {(row["text"], *row["settings"].values()) for row in rows}
    points = list(product(options.segments, options.epsilons, RATIOS, options.decays))
    for (segment, epsilon, ratio, decay), text in product(points, options.texts):
        settings = {
            "dynamic.segment": segment,
            "dynamic.epsilon": epsilon,
            "dynamic.lr": ratio * epsilon,
            "dynamic.decay": decay,
        }
        if (text, *settings.values()) in done:
            continue
        rows.append({"text": text, "settings": settings, "nll": loss(text, options.tokens, settings)})
        command = " ".join(["python -m recipes.dynamic", *sys.argv[1:]])
        document = {
            "schema": "hebblm-dynamic/1",
            "tokens": options.tokens,
            "split": "valid",
            "rows": rows,
            "provenance": provenance(command, device="cpu", seed=1111),
        }
        write_json(options.json, document)
        print(text, settings, f"{rows[-1]['nll']:.4f}", flush=True)
    means: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        means.setdefault(tuple(row["settings"].items()), []).append(row["nll"])
    texts = max(map(len, means.values()))
    whole = [point for point, losses in means.items() if len(losses) == texts]
    best = min(whole, key=lambda point: math.fsum(means[point]))
    print(f"least mean loss: {dict(best)}")


if __name__ == "__main__":
    main()
