"""How corpora and scenarios are called in headings and tables."""

from __future__ import annotations

from pathlib import PurePath

_TEXT = "text:"


def corpus_name(corpus: str) -> str:
    """Return a corpus as a reader knows it: of a text of one's own the name of its file or folder, else as it is."""
    if not corpus.startswith(_TEXT):
        return corpus
    return PurePath(corpus.removeprefix(_TEXT)).name or corpus


def scenario_label(source: str, target: str, split: str) -> str:
    """Return a short name such as ``wt2-to-ptb test`` or ``ptb valid``."""
    read = corpus_name(target)
    return f"{read if source == target else f'{corpus_name(source)}-to-{read}'} {split}"
