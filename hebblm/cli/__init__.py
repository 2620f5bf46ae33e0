"""Commands: parsing and wiring only."""

import sys
from types import TracebackType


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report a Ctrl-C in one line while a command is still being imported and cannot catch it
    itself.
    """
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted before anything was done", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _told
