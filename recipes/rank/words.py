"""Whether a reader tells a text's words from others of like spelling, before and after it read of
the same.

Each list holds a word of the text and five words near it in spelling, from the words of the text
and of the model's dictionary, after up to twenty words before it. A method reads the beginning of a
text; the lists are from the rest.

    python -m recipes.rank.words --text numpy --output recipes/rank/numpy.json
"""

from __future__ import annotations

import argparse
import difflib
import math
import random
import re
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

import hebblm
from hebblm.io.files import check_writable, write_json
from hebblm.io.provenance import command_line, provenance
from hebblm.reader.reader import Reader
from hebblm.runtime.progress import track
from hebblm.text.corpora import resolve
from hebblm.text.documentation import tokens_of

METHODS = "lstm,cache,knn,mbpa,mixture+mbpa,ngram,best"
NEAR = 5  # wrong words in a list
LOOKED_AT = 60  # words of like letters, the nearest are taken
BEFORE = 20  # words
COMMON = 100  # occurrences in the training text from which on a word is common
KINDS = ("common", "rare", "new, read of", "new, not read of")


@dataclass(frozen=True, slots=True)
class Choice:
    """A word of the text, what stands before it, and it among others."""

    kind: str
    before: str
    words: tuple[str, ...]  # the right one first


def lines_of(text: str) -> Iterator[str]:
    """Lines of a text, words and punctuation between spaces."""
    if text == "code":  # of Python's own library
        folder = Path(sysconfig.get_paths()["stdlib"], "asyncio")
        for path in sorted(folder.glob("*.py")):
            for line in path.read_text(encoding="utf-8").splitlines():
                if words := re.findall(r"\w+|[^\w\s]", line):
                    yield " ".join(words)
    else:
        yield from (" ".join(tokens_of(line)) for line in resolve(text).lines("test"))


def cut(text: str, read: int) -> tuple[list[str], list[str]]:
    """Lines of the beginning of a text, of so many words or a few more, and those after."""
    lines, count = list(lines_of(text)), 0
    for number, line in enumerate(lines):
        count += len(line.split()) + 1
        if count >= read:
            return lines[: number + 1], lines[number + 1 :]
    raise SystemExit(f"{text} has only {count:,} words; lower --read")


def nearest(words: Sequence[str], every: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """For each word those of ``every`` that are nearest to it in spelling, itself apart."""
    letters = CountVectorizer(analyzer="char_wb", ngram_range=(1, 2), lowercase=False)
    rows = letters.fit_transform(every).astype(np.float32)
    sizes = np.sqrt(rows.multiply(rows).sum(1).A1)
    found = {}
    for word in words:
        own = letters.transform([word]).astype(np.float32)
        likeness = (rows @ own.T).toarray()[:, 0] / sizes
        near = [
            every[at]
            for at in np.argsort(-likeness, kind="stable")[:LOOKED_AT]
            if every[at] != word
        ]
        ratio = difflib.SequenceMatcher(None, word, autojunk=False)
        found[word] = tuple(sorted(near, key=lambda other: -_ratio(ratio, other))[:count])
    return found


def _ratio(matcher: difflib.SequenceMatcher[str], other: str) -> float:
    matcher.set_seq1(other)
    return matcher.ratio()


def choices(
    lm: hebblm.LanguageModel,
    read: Sequence[str],
    after: Sequence[str],
    most: int,
    near: int,
    seed: int,
) -> list[Choice]:
    """Lists from the lines after it, ``most`` of each kind."""
    known = dict(
        zip(
            (lm.vocabulary[n] for n in range(lm.vocabulary.known)),
            lm.vocabulary.counts,
            strict=True,
        )
    )
    seen = {word for line in read for word in line.split()}
    places: dict[str, list[tuple[str, str]]] = {kind: [] for kind in KINDS}
    for number, line in enumerate(after):
        words = line.split()
        above = " ".join(after[max(0, number - 2) : number]).split() if len(words) < BEFORE else []
        for at, word in enumerate(words):
            if len(word) >= 3 and word.isalpha():
                count = known.get(word)
                kind = KINDS[3 - (word in seen)] if count is None else KINDS[int(count < COMMON)]
                places[kind].append((word, " ".join([*above, *words[:at]][-BEFORE:])))
    draw = random.Random(seed)
    chosen = [
        (kind, *place)
        for kind, all_ in places.items()
        for place in draw.sample(all_, min(most, len(all_)))
    ]
    every = sorted(
        {
            word
            for word in (*known, *seen, *" ".join(after).split())
            if len(word) >= 3 and word.isalpha()
        }
    )
    alike = nearest(sorted({word for _, word, _ in chosen}), every, near)
    return [Choice(kind, before, (word, *alike[word])) for kind, word, before in chosen]


def right(reader: Reader, lists: Sequence[Choice], title: str) -> list[bool]:
    """Whether the right word of each list comes first; a list comes after the beginning of a
    text.
    """
    found = []
    for one in track(lists, title, len(lists), "lists"):
        words = sorted(one.words)  # so that equal scores say nothing about the right one
        best = reader.rank(words, one.before + " " if one.before else "")[0]
        found.append(best.text == one.words[0])
    return found


def share(found: Sequence[bool]) -> dict[str, Any]:
    """Share of right ones, with Wilson's 95 % interval."""
    n, p, z = len(found), sum(found) / len(found), 1.96
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return {
        "lists": n,
        "right": p,
        "low": (middle - half) / (1 + z * z / n),
        "high": (middle + half) / (1 + z * z / n),
    }


def gain(found: Sequence[bool], base: Sequence[bool]) -> dict[str, float]:
    """Right ones more than another has on the same lists, as a share of all, with a paired 95 %
    interval.
    """
    differences = np.array(found, float) - np.array(base, float)
    mean, half = differences.mean(), 1.96 * differences.std(ddof=1) / math.sqrt(len(differences))
    return {"more": float(mean), "low": float(mean - half), "high": float(mean + half)}


def by_kind(lists: Sequence[Choice], found: Sequence[bool]) -> dict[str, list[bool]]:
    groups = {
        kind: [good for one, good in zip(lists, found, strict=True) if one.kind == kind]
        for kind in KINDS
    }
    return {**{kind: group for kind, group in groups.items() if group}, "all": list(found)}


def timed(reader: Reader, lists: Sequence[Choice], title: str) -> dict[str, Any]:
    """What it costs to rank lists."""
    began, cpu = time.perf_counter(), time.process_time()
    right(reader, lists, title)
    seconds = {
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - cpu,
    }
    return {"lists": len(lists), "of": len(lists[0].words), **seconds}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="small-wt2-raw", help="of words")
    parser.add_argument(
        "--text", default="numpy", help="a corpus, whose test part is used, or code"
    )
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--read", type=int, default=10_000, help="words that are read")
    parser.add_argument("--lists", type=int, default=250, help="of each kind of words, at most")
    parser.add_argument(
        "--timed",
        type=int,
        default=0,
        help="so many lists of ten are ranked once more by the clock",
    )
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args(argv)
    check_writable(asked.output.parent)
    by = provenance(
        "python -m " + command_line("recipes.rank.words", argv), device="cpu", seed=asked.seed
    )
    lm = hebblm.load(asked.model, device="cpu")
    read, after = cut(asked.text, asked.read)
    lists = choices(lm, read, after, asked.lists, NEAR, asked.seed)
    more = (
        choices(lm, read, after, asked.timed // 3, 9, asked.seed)[: asked.timed]
        if asked.timed
        else []
    )
    found: dict[str, Any] = {}
    base: dict[str, list[bool]] = {}
    for method in asked.methods.split(","):
        reader = lm.reader(method, tokenizer="whitespace")
        before = right(reader, lists, f"{method} before")
        reader.read("\n".join(read) + "\n")
        reader.begin()
        after = right(reader, lists, f"{method} after")
        groups = by_kind(lists, after)
        base = base or groups
        found[method] = {
            "before": {kind: share(group) for kind, group in by_kind(lists, before).items()},
            "after": {kind: share(group) for kind, group in groups.items()},
            f"after, more than {asked.methods.split(',')[0]}": {
                kind: gain(group, base[kind]) for kind, group in groups.items()
            },
            **({"timed": timed(reader, more, f"{method} timed")} if more else {}),
        }
        words = sum(len(line.split()) + 1 for line in read)
        settings = {
            "words_read": words,
            "near": NEAR,
            "before": BEFORE,
            "common": COMMON,
            "seed": asked.seed,
        }
        write_json(
            asked.output,
            {
                "provenance": by,
                "model": asked.model,
                "text": asked.text,
                "settings": settings,
                "methods": found,
            },
        )
        print(
            method,
            {kind: f"{100 * one['right']:.1f}" for kind, one in found[method]["after"].items()},
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
