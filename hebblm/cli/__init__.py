"""Commands: parsing and wiring only."""

import sys
from types import TracebackType


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Tell a Ctrl-C in one line where a command is still being imported, before it can catch one itself."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted before anything was done", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _told
