"""Damage, by seed: bytes changed anywhere, and values of JSON replaced by others."""

from __future__ import annotations

import json
import random
from typing import Any

ODD: tuple[Any, ...] = (None, True, -1, 0, 3, 10**30, 1e308, -0.5, "", "x", "../x", [], {}, [[1]], {"x": 1})


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return other bytes than ``content``, which has some."""
    while (found := _json(content, draw) if draw.random() < 0.5 else _bytes(content, draw)) == content:
        pass
    return found


def _bytes(content: bytes, draw: random.Random) -> bytes:
    """Return bytes that were flipped, cut, put in, left out, doubled or zeroed."""
    begin = draw.randrange(len(content))
    end = min(len(content), begin + draw.choice((1, 1, 2, 8, 100)))
    before, middle, after = content[:begin], content[begin:end], content[end:]
    match draw.randrange(6):
        case 0:
            return before + bytes(draw.randrange(256) for _ in middle) + after
        case 1:
            return before
        case 2:
            return before + draw.randbytes(draw.randrange(1, 9)) + middle + after
        case 3:
            return before + after
        case 4:
            return before + middle * 2 + after
        case _:
            return before + bytes(len(middle)) + after


def _json(content: bytes, draw: random.Random) -> bytes:
    """Return a JSON document with one value replaced, left out or renamed; other content is damaged by its bytes."""
    try:
        document = json.loads(content)
    except ValueError:
        return _bytes(content, draw)
    places = list(_places(document))
    if not places:
        return _bytes(content, draw)
    holder, key = draw.choice(places)
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
            holder[key] += draw.choice((-1, 1, 1000))
        case _:
            holder[key] = draw.choice(ODD)
    return json.dumps(document).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every value within a document as the object or list that holds it, and its key there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *_places(value[key])]]
