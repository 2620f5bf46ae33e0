"""Choice of the cache's window: its loss by window on validation text, and what each window loses to the best.

    python -m recipes.windows --json recipes/defaults/windows.json

Sharpness and share are learned while reading, as by default. What is done is kept: the same command goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import hebblm
from hebblm.files import read_json, write_json
from hebblm.provenance import provenance

WINDOWS = (250, 500, 1000, 2000, 4000, 8000)
TOKENS = 10_000
TEXTS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "ptb": (None, {"intra_domain": "ptb"}),
    "wt2": (None, {"intra_domain": "wt2"}),
    "wt2-to-ptb": (None, {"cross_domain": "wt2-to-ptb"}),
    "pydoc-to-numpy": (None, {"cross_domain": "pydoc-to-numpy"}),
    "llama wt2": ("wt2", {"model": "llama-wt2-small"}),
    "llama ptb": ("ptb", {"model": "llama-wt2-small"}),
}


def losses(target: str | None, options: dict[str, Any]) -> dict[str, float]:
    """Return the loss of the base and of the cache by window, nats a word."""
    found = {}
    for window in WINDOWS:
        result = hebblm.evaluate(
            target=target,
            methods=["lstm", "cache"],
            settings={"cache.window": window},
            split="valid",
            max_tokens=TOKENS,
            **options,
        )
        found["base"] = result.methods["lstm"].nll
        found[str(window)] = result.methods["cache"].nll
    return found


def main() -> None:
    """Measure every text that the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    path = parser.parse_args().json
    texts: dict[str, dict[str, float]] = read_json(path)["nll"] if path.exists() else {}
    for name, (target, options) in TEXTS.items():
        if name not in texts:
            texts[name] = losses(target, options)
        regrets = {
            window: max(found[str(window)] - min(found[str(other)] for other in WINDOWS) for found in texts.values())
            for window in WINDOWS
        }
        document = {
            "schema": "hebblm-windows/1",
            "tokens": TOKENS,
            "nll": texts,
            "largest_loss": {str(window): regret for window, regret in regrets.items()},
            "provenance": provenance("python -m recipes.windows", device="cpu", seed=1111),
        }
        write_json(path, document)
        print(name, {window: round(loss, 4) for window, loss in texts[name].items()}, flush=True)


if __name__ == "__main__":
    main()
