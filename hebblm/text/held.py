"""Texts that a program holds, kept in the cache as a file of records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hebblm.download import cache_dir
from hebblm.errors import UserError
from hebblm.files import write_bytes
from hebblm.text.records import COLUMN


def kept_texts(texts: Any) -> Path:
    """File with a record for each text of a list or a pandas Series, so that they are read as any file is.

    Its name is a hash of the texts: the same ones are kept once. A text that is missing is empty.
    """
    if hasattr(texts, "columns"):
        raise UserError(
            f"target is a table; name its column of text, as table[{str(next(iter(texts.columns), 'text'))!r}]"
        )
    if not isinstance(texts, Sequence) and getattr(texts, "ndim", 0) != 1:
        raise UserError(
            f"target = {texts!r:.60} is no text; name a corpus, the path of a text, or give a list of strings"
        )
    missing = texts.isna() if hasattr(texts, "isna") else [text is None for text in texts]
    if not len(texts):
        raise UserError("target holds no text; put strings into it")
    lines = []
    for number, (text, absent) in enumerate(zip(texts, missing, strict=True), 1):
        if not absent and not isinstance(text, str):
            raise UserError(f"text {number} of target is {text!r:.60}, not a string; leave it out or write it as one")
        lines.append(json.dumps({COLUMN: None if absent else str(text)}, ensure_ascii=False) + "\n")
    try:
        data = "".join(lines).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"target holds {error.object[error.start]!r}, half a surrogate pair; decode it anew") from error
    path = cache_dir() / "texts" / f"{hashlib.sha256(data).hexdigest()[:16]}.jsonl"
    return path if path.is_file() else write_bytes(path, data)
