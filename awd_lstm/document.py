"""What a checkpoint says of itself: its JSON document, read without loading torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = "config.json"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: missing, truncated, of another format, or for another dictionary."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the JSON document of a checkpoint, empty if there is none."""
    try:
        document = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise CheckpointError(
            f"{folder / CONFIG} is not valid JSON; restore or retrain the checkpoint"
        ) from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{folder / CONFIG} is not a JSON object; restore or retrain the checkpoint")
    return document
