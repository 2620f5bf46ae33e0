"""A user's own text, prepared and with a trained model, made once for all end-to-end tests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from hebblm.cli.preprocess import main as preprocess
from hebblm.cli.train import main as train


@dataclass(frozen=True)
class World:
    """Where everything stands.

    Args:
        text: a novel of about 150 kB.
        other: a shorter text with words that the novel does not have.
        prepared: the novel as ids.
        other_prepared: the other text as ids.
        model: a tiny model of the novel, trained for one epoch.
    """

    text: Path
    other: Path
    prepared: Path
    other_prepared: Path
    model: Path


def sentences(count: int, seed: int, words: int, offset: int = 0) -> list[str]:
    """Return sentences whose words follow Zipf's law and each other by rule, so that there is something to learn."""
    draw = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    names = random.Random(0)
    lexicon = ["".join(names.choices(syllables, k=names.randint(1, 4))) for _ in range(words + offset)][offset:]
    weights = [1 / (rank + 3) for rank in range(len(lexicon))]
    lines = []
    for _ in range(count):
        line = draw.choices(range(len(lexicon)), weights, k=draw.randint(3, 8))
        follower = [(7 * index + 1) % len(lexicon) for index in line]
        lines.append(" ".join(lexicon[i] for pair in zip(line, follower, strict=True) for i in pair) + " .")
    return lines


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    made = World(root / "novel.txt", root / "other.txt", root / "novel", root / "other", root / "model")
    made.text.write_text("\n".join(sentences(2000, 1, 600)) + "\n")
    made.other.write_text("\n".join(sentences(300, 2, 600, offset=150)) + "\n")
    for text, folder in ((made.text, made.prepared), (made.other, made.other_prepared)):
        assert preprocess(["--text", str(text), "--output-path", str(folder)]) == 0
    quick = ["--preset", "tiny", "--epochs", "1", "--device", "cpu"]
    assert train(["--corpus", str(made.prepared), *quick, "--output-path", str(made.model)]) == 0
    return made
