"""A reader that forgets a document is, to the bit, one that never read it, whatever else both
did.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm
from hebblm.adapt.methods import METHODS
from hebblm.memory.persistence import read_manifest
from hebblm.reader.history import Journal

from ..support import toy

GONE = "the minutes"
NAMES = ("", "a letter", "notes.txt")
WORDS = (
    "The", "function", "frobnitz", "returns", "a", "list", ".", "Call", "it", "with", "None", "an",
    "error", "method"
)  # fmt: skip
NEW = ("quux", "blarg", "Zyxel", "wug", "snark")


KINDS = ("tiny-pydoc-raw", "llama-wt2-small")
CLOCK = [""]


def settings_of(moving: bool) -> dict[str, Any]:
    return {"dynamic.rule": "sgd", "dynamic.lr": 8e-4} if moving else {}


@cache
def model(kind: str) -> hebblm.LanguageModel:
    return hebblm.load(kind, device=torch.device("cpu"))


def text(draw: random.Random, *, mixed: bool = False) -> str:
    """Some words; ``mixed`` may be split at punctuation as well, and then all texts behind the
    first one are.
    """
    words = [draw.choice(WORDS if draw.random() < 0.8 else NEW) for _ in range(draw.randint(3, 12))]
    glue = draw.choice([" ", ", "]) if mixed else " "
    return glue.join(words) + draw.choice(["", "\n"])


@dataclass
class Act:
    """Something that is done with a reader."""

    kind: str
    name: str
    texts: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    number: int = 0


def acts(draw: random.Random, method: str, count: int, *, mixed: bool) -> list[Act]:
    found = []
    for number in range(count):
        kind = draw.choices(
            [
                "read",
                "unlearned",
                "pieces",
                "together",
                "ids",
                "begin",
                "reopened",
                "cut",
                "stopped",
            ],
            [5, 2, 2, 0 if METHODS[method].uses_dynamic_base else 2, 1, 1, 2, not mixed, not mixed],
        )[0]
        act = Act(kind, draw.choice([GONE, GONE, *NAMES]), [text(draw, mixed=mixed)], number=number)
        if kind == "pieces":
            act.texts += [text(draw, mixed=mixed) for _ in range(2)]
            act.texts = [piece.rstrip("\n") + "\n" for piece in act.texts]
        elif kind == "together":
            act.texts += [text(draw, mixed=mixed), text(draw, mixed=mixed)]
            act.options["names"] = (
                draw.sample([GONE, "a letter", "notes.txt"], 3) if draw.random() < 0.8 else None
            )
        elif kind == "cut":
            act.options["most"] = draw.randint(1, 12)
        elif kind == "reopened":
            other = draw.choice(
                [
                    name
                    for name in METHODS
                    if METHODS[name].uses_dynamic_base == METHODS[method].uses_dynamic_base
                ]
            )
            act.options["method"] = draw.choice([None, None, other])
        found.append(act)
    return found


def stop(done: int, total: int) -> None:
    raise KeyboardInterrupt


def done(  # noqa: C901 - one branch for each kind of act
    reader: hebblm.Reader, all_of: Iterable[Act], folder: Path, gone: str | None = None
) -> hebblm.Reader:
    """Do all acts, without those on the document that is gone.

    Texts that are not learned are not kept, so then what follows one begins anew, as it does where
    it is read again.
    """
    lm = next(model(kind) for kind in KINDS if model(kind).model is reader.model)
    for act in all_of:
        CLOCK[0] = f"moment {act.number}"
        if act.kind == "together" and act.options["names"]:
            several = dict(zip(act.options["names"], act.texts, strict=True))
            several.pop(gone, None)
            reader.read(several)
        elif act.kind == "together":
            reader.read(act.texts)
        elif act.kind == "begin":
            reader.begin()
        elif act.kind == "reopened":
            reader.save(folder / "known")
            reader = lm.reader(
                act.options["method"],
                memory=folder / "known",
                settings=settings_of(reader.uses_dynamic_base),
            )
        elif act.name == gone:
            continue
        elif act.kind in ("read", "unlearned"):
            reader.read(act.texts[0], name=act.name, learn=act.kind == "read")
            if act.kind == "unlearned" and gone is not None:
                reader.session.begin_text()
        elif act.kind in ("pieces", "cut"):
            list(reader.read_pieces(act.texts, name=act.name, max_tokens=act.options.get("most")))
        elif act.kind == "ids":
            known = lm.vocabulary.encode("The function returns a list . Call it", include=False).ids
            reader.read([index for index in known if index != lm.vocabulary.unknown], name=act.name)
        else:
            with pytest.raises(KeyboardInterrupt):
                reader.read(act.texts[0], name=act.name, progress=stop)
    return reader


@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((KINDS[0], method) for method in METHODS),
        # A model of pieces takes a minute a method.
        *(
            pytest.param(KINDS[1], method, marks=() if method == "best" else pytest.mark.slow)
            for method in ("best", "cache", "dynamic")
        ),
    ],
)
def test_a_reader_that_forgets_is_one_that_never_read(
    kind: str, method: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "now", lambda self: self.time or CLOCK[0])
    lm, draw = model(kind), random.Random(f"{kind} {method} {seed}")
    settings = settings_of(METHODS[method].uses_dynamic_base)
    options: dict[str, Any] = {"update_every": draw.choice([3, 8]), "k": 7, "settings": settings}
    mixed = draw.random() < 0.5
    before, after = (acts(draw, method, count, mixed=mixed) for count in (6, 2))
    before.insert(
        draw.randint(0, 6), Act("read", GONE, [text(draw, mixed=mixed) + " jabberwock"], number=99)
    )
    reader = done(lm.reader(method, **options), before, tmp_path)
    reader.forget(GONE, replay=METHODS[method].uses_dynamic_base)
    other = done(lm.reader(method, **options), before, tmp_path / "other", GONE)
    assert reader.documents() == other.documents()
    for name, one in (("one", reader), ("other", other)):
        one.save(tmp_path / "saved" / name)
    first, second = (toy.files_in(tmp_path / "saved" / name) for name in ("one", "other"))
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert not [name for name, content in first.items() if b"jabberwock" in content]
    assert read_manifest(tmp_path / "saved" / "one" / "memory").count == len(other)
    for ask in ("", "The function"):
        assert reader.suggest(ask, 4, budget=8) == other.suggest(ask, 4, budget=8)
    reader, other = done(reader, after, tmp_path), done(other, after, tmp_path / "other")
    found, expected = (one.read("Call frobnitz with the snark .\n" * 3) for one in (reader, other))
    assert torch.equal(found.nll, expected.nll)
    assert found.unadapted is not None
    assert expected.unadapted is not None
    assert torch.equal(found.unadapted.nll, expected.unadapted.nll)
