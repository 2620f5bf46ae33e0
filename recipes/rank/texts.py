"""Texts of this machine for a pretrained model: documentation, code, and prose that has nothing to
do with them.
"""

from __future__ import annotations

import inspect
import sysconfig
from pathlib import Path

import numpy as np

from hebblm.text.corpora import resolve


def text_of(name: str) -> str:
    """Documentation of NumPy's linear algebra and FFT, code of asyncio, or articles of
    WikiText-2.
    """
    if name == "docs":
        modules = (np.linalg, np.fft)
        members = [getattr(module, each) for module in modules for each in sorted(module.__all__)]
        return "\n\n\n".join(inspect.getdoc(each) or "" for each in members)
    if name == "code":
        folder = Path(sysconfig.get_paths()["stdlib"], "asyncio")
        return "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    return "\n".join(line for line in resolve("wt2").lines("valid") if len(line.split()) > 20)
