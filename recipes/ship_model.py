"""Turn a trained checkpoint into the float16 form that ships under data/models.

Usage: python recipes/ship_model.py CHECKPOINT data/models/small-ptb-raw
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from awd_lstm import load_checkpoint, read_config, save_checkpoint

LIMIT = 50_000_000  # bytes; models travel with the source


def main(source: Path, destination: Path) -> None:
    """Write the small form of a checkpoint."""
    document = read_config(source)
    model = load_checkpoint(source)
    save_checkpoint(
        destination,
        model,
        dictionary_sha256=document["dictionary_sha256"],
        training=document["training"],
        dtype=torch.float16,
    )
    size = (destination / "model.safetensors").stat().st_size
    if size > LIMIT:
        sys.exit(f"{destination} has {size:,} bytes, over the limit of {LIMIT:,}")
    print(f"{destination}: {size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
