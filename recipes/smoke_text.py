"""Write two small English texts that every machine has: Python's help topics and NumPy's
documentation.

Usage: python recipes/smoke_text.py FOLDER
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from hebblm.io.files import write_text
from hebblm.text.documentation import paragraphs

PARAGRAPHS = {"pydoc": 600, "numpy": 300}


def sources() -> dict[str, Iterable[str]]:
    """Return the documents of each text, in order of name."""
    documents = (inspect.getdoc(getattr(np, name)) for name in sorted(np.__all__))
    return {"pydoc": (topics[name] for name in sorted(topics)), "numpy": filter(None, documents)}


def main(folder: Path) -> None:
    for name, documents in sources().items():
        lines = list(dict.fromkeys(line for text in documents for line in paragraphs(text)))
        write_text(
            folder / f"{name}.txt", "".join(f"{line}\n" for line in lines[: PARAGRAPHS[name]])
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
