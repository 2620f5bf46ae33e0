"""How a user installs what this program can use but does not need."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def install(extra: str) -> str:
    """Return the command that installs an extra into the Python that runs, and where to run it."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    return f"{shlex.quote(str(python))} -m pip install -e '.[{extra}]' in the checkout"
