"""Losses of a training, as JSON: ``python recipes/training_progress.py FOLDER --output FILE``.

Of one that has ended they go as far as its best epoch, whose model the folder holds.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from awd_lstm import read_config
from awd_lstm.state import STATE, load_state
from hebblm.files import write_json
from hebblm.provenance import provenance


def main() -> None:
    """Write the progress of a training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if (options.folder / STATE).exists():
        _, record = load_state(options.folder / STATE)
    else:
        held = read_config(options.folder)
        ended = held["training"]
        record = ended | {"model": held["config"], "training": ended["config"], "valid": ended["valid_losses"]}
        record |= {"segments": ended["curve"][-1][1]}
    document = {
        "schema": "hebblm-training-progress/1",
        "model": record["model"],
        "training": record["training"],
        "epochs_done": record["epoch"],
        "segments": record["segments"],
        "seconds": record["seconds"],
        "valid_perplexity": [math.exp(loss) for loss in record["valid"]],
        "training_loss": record["curve"][-1:],
        "provenance": provenance(
            f"python recipes/training_progress.py {options.folder.name}",
            device="cpu",
            seed=record["training"]["seed"],
        ),
    }
    write_json(options.output, document)
    print(json.dumps({key: document[key] for key in ("epochs_done", "segments", "seconds", "valid_perplexity")}))


if __name__ == "__main__":
    main()
