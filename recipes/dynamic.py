"""Tuning of dynamic evaluation beyond rate and decay: its epsilon and its segment, too, on validation text.

Nearly all mean squares of gradients lie far below epsilon, so that rate over epsilon is the rate of plain descent; the
grid holds that ratio. What is done is kept: the same command goes on.

Usage: python -m recipes.dynamic --json recipes/defaults/dynamic.json
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import hebblm
from hebblm.files import read_json, write_json
from hebblm.provenance import provenance

TOKENS = 5_000
TEXTS = ("ptb",)
SEGMENTS, EPSILONS = (50, 20, 5), (1e-3, 1e-4, 2e-5)
RATIOS, DECAYS = (2.0, 4.0, 8.0, 16.0), (0.02, 0.1, 0.3)


def loss(text: str, methods: list[str], settings: dict[str, Any]) -> float:
    """Return the loss of the last of some methods, nats a word."""
    result = hebblm.evaluate(
        intra_domain=text, methods=methods, settings=settings, split="valid", max_tokens=TOKENS
    )
    return result.methods[methods[-1]].nll


def main() -> None:
    """Measure every point that the file does not hold yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    path = parser.parse_args().json
    rows: list[dict[str, Any]] = read_json(path)["rows"] if path.exists() else []
    done = {(row["text"], *row["settings"].values()) for row in rows}
    for text in TEXTS:
        for segment, epsilon, ratio, decay in product(SEGMENTS, EPSILONS, RATIOS, DECAYS):
            settings = {
                "dynamic.segment": segment,
                "dynamic.epsilon": epsilon,
                "dynamic.lr": ratio * epsilon,
                "dynamic.decay": decay,
            }
            if (text, *settings.values()) in done:
                continue
            rows.append(
                {"text": text, "settings": settings, "nll": loss(text, ["lstm", "dynamic"], settings)}
            )
            document = {
                "schema": "hebblm-dynamic/1",
                "tokens": TOKENS,
                "split": "valid",
                "rows": rows,
                "provenance": provenance("python -m recipes.dynamic", device="cpu", seed=1111),
            }
            write_json(path, document)
            print(text, settings, f"{rows[-1]['nll']:.4f}", flush=True)


if __name__ == "__main__":
    main()
