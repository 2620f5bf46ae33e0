"""Check by the exit status whether a command finished a result.

Usage: python recipes/finished.py FILE COMMAND...
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path


def finished(file: Path, command: list[str]) -> bool:
    """Return whether ``file`` names the command as its origin, and the token losses are next to
    it.
    """
    try:
        made_by = json.loads(file.read_text(encoding="utf-8"))["provenance"]["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    logged = "--log-samples" not in command or file.with_name("tokens.parquet").is_file()
    return bool(made_by == shlex.join(command)) and logged


if __name__ == "__main__":
    sys.exit(0 if finished(Path(sys.argv[1]), sys.argv[2:]) else 1)
