"""``hebblm``: every command under one name; ``hebblm eval ...`` is ``hebblm-eval ...``."""

from __future__ import annotations

import sys
from importlib import import_module

from hebblm import __version__
from hebblm.cli.common import Main, choosing, guarded
from hebblm.runtime.spelling import unknown

PROG = "hebblm"
SUBCOMMANDS = {  # each is the module of that name in hebblm.cli, and the command hebblm-NAME
    "read": "Read a text with an adapting model, and see what it expects before and after.",
    "serve": "Answer completions, suggestions and questions over HTTP, and learn from documents.",
    "eval": "Compare methods on one text, and say which predicts it best.",
    "memory": "Build, describe and merge memories; forget documents and words.",
    "tune": "Find hyper-parameters on validation text.",
    "report": "Turn results into tables, plots and pages.",
    "preprocess": "Turn a text into a dictionary and ids to train on.",
    "train": "Train a word model.",
    "vision": "Run image experiments.",
}


def _imported_late(name: str) -> Main:
    """Return a subcommand that imports its module when it runs, so that none waits for the
    others.
    """

    def run(argv: list[str] | None = None) -> int:
        status: int = import_module(f"hebblm.cli.{name}").main(argv)
        return status

    run.__doc__ = SUBCOMMANDS[name]
    return run


_choose = choosing(PROG, {name: _imported_late(name) for name in SUBCOMMANDS})


@guarded(PROG)
def main(argv: list[str] | None = None) -> int:
    """Run a subcommand and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    option = words[0] if words and words[0].startswith("-") else None
    if option == "--version":
        print(f"{PROG} {__version__}")
        return 0
    if option not in (None, "-h", "--help"):
        raise unknown("option", option, ("--help", "--version"), f"see {PROG} --help")
    return _choose(words or ["--help"])


if __name__ == "__main__":
    sys.exit(main())
