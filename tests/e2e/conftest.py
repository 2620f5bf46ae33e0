"""A user's own text, prepared and with a trained model, made once for all end-to-end tests;
commands by their lines.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from ..unit.models.architectures import random_model, tokenizer


@dataclass(frozen=True)
class World:
    """Where everything stands."""

    text: Path  # a novel of about 150 kB
    other: Path  # a shorter text with words that the novel does not have
    prepared: Path  # the novel as ids
    other_prepared: Path
    model: Path  # a tiny model of the novel, trained for one epoch


def main_of(command: str) -> Callable[[list[str] | None], int]:
    """What ``hebblm-COMMAND`` runs."""
    main: Callable[[list[str] | None], int] = import_module(f"hebblm.cli.{command}").main
    return main


def run(line: str) -> int:
    """Run a command line in this process, ``hebblm-`` left out; return its status."""
    command, *arguments = shlex.split(line)
    return main_of(command)(arguments)


def refused(
    capsys: pytest.CaptureFixture[str], line: str, *told: str, work_before: bool = False
) -> None:
    """Run a command line that must end with status 2 and a single line, after nothing but progress
    bars.
    """
    capsys.readouterr()
    assert run(line) == 2
    lines = [words for words in capsys.readouterr().err.splitlines() if words.strip()]
    assert lines[-1].startswith(f"hebblm-{line.split()[0]}: error: ")
    for words in told:
        assert words in lines[-1]
    assert work_before or len(lines) == 1
    assert not any("Traceback" in words or "error:" in words for words in lines[:-1])


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def result(folder: Path, name: str = "result.json") -> dict[str, Any]:
    """A result as plain JSON."""
    document: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return document


@contextmanager
def one_thread() -> Iterator[None]:
    """A number of threads decides about rounding."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def sentences(count: int, seed: int, words: int, offset: int = 0) -> list[str]:
    """Sentences whose words follow Zipf's law and each other by rule, so that there is something to
    learn.
    """
    draw = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    names = random.Random(0)
    lexicon = [
        "".join(names.choices(syllables, k=names.randint(1, 4))) for _ in range(words + offset)
    ][offset:]
    weights = [1 / (rank + 3) for rank in range(len(lexicon))]
    lines = []
    for _ in range(count):
        line = draw.choices(range(len(lexicon)), weights, k=draw.randint(3, 8))
        follower = [(7 * index + 1) % len(lexicon) for index in line]
        lines.append(
            " ".join(lexicon[i] for pair in zip(line, follower, strict=True) for i in pair) + " ."
        )
    return lines


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    made = World(
        root / "novel.txt", root / "other.txt", root / "novel", root / "other", root / "model"
    )
    made.text.write_text("\n".join(sentences(2000, 1, 600)) + "\n")
    made.other.write_text("\n".join(sentences(300, 2, 600, offset=150)) + "\n")
    for text, folder in ((made.text, made.prepared), (made.other, made.other_prepared)):
        assert run(f"preprocess --text {text} --output-path {folder}") == 0
    assert (
        run(
            f"train --corpus {made.prepared} --preset tiny --epochs 1 --device cpu --output-path "
            f"{made.model}"
        )
        == 0
    )
    return made


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of transformers with its tokenizer, in ``model``, and two texts."""
    folder = tmp_path_factory.mktemp("causal")
    random_model("Llama").save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    (folder / "train.txt").write_text("\n".join(sentences(120, 1, 40)) + "\n")
    (folder / "text.txt").write_text("\n".join(sentences(12, 2, 40, offset=15)) + "\n")
    return folder
