"""How often a text's next word is among the whole words that a reader of pieces suggests, and among those by rank.

    python -m recipes.accuracy_words smollm2-135m docs.txt --places 300 --output recipes/accuracy/words-docs.json

A reader of each method reads the text. At evenly spread beginnings of words it suggests five words, and only then reads
on. "by rank" is what hebblm-eval --accuracy counts: all pieces of the word, each after those before it, have at most
that rank. The beam is compared with one of four times its width wherever it stopped before it was sure.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hebblm
from hebblm.adapt.methods import unaliased
from hebblm.expected import Expected
from hebblm.files import check_writable, read_json, write_json
from hebblm.progress import say
from hebblm.provenance import command_line, provenance
from hebblm.reader import Reader
from hebblm.report.gains import Bootstrap, Gain, bootstrap_gains
from hebblm.report.methods import BASE, name_of
from hebblm.report.table import Column, Table
from hebblm.report.tables import interval_text
from hebblm.text.subwords import Subwords
from hebblm.text.vocabulary import Encoded
from hebblm.words_ahead import WIDTH, PieceTexts, words_ahead
from recipes.best_tables import origin
from recipes.markdown import ROOT, body

LISTED = 5  # words
BOOTSTRAP = Bootstrap(block=5)  # places that are drawn together
MEASURES = ("beam 1", "beam 5", "rank 1", "rank 5")
FOLDER = ROOT / "recipes" / "accuracy"


def beginnings(text: Encoded, places: int) -> list[tuple[int, int, str]]:
    """Return evenly spread words by their first piece and the one after their last."""
    assert text.words is not None
    first, last = text.words.first, text.words.last
    found = 1 + np.flatnonzero(first[1:] > last[:-1])
    found = found[np.unique(np.linspace(0, len(found) - 1, places).astype(int))]
    ends = np.searchsorted(first, first[found], side="right")
    return [(int(at), int(end), text.words.texts[first[at]]) for at, end in zip(found, ends, strict=True)]


@torch.no_grad()
def asked(reader: Reader, texts: PieceTexts, ids: Sequence[int], word: str) -> dict[str, float]:
    """Return whether a word of some pieces is among those suggested, by both measures, before it is read."""
    begun, rows = time.process_time(), 0
    with reader._following("") as (_, following):

        def expect(beginnings: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
            nonlocal rows
            rows += len(beginnings)
            return following(beginnings)

        found = words_ahead(expect, texts, LISTED, WIDTH)
        seconds, sure = time.process_time() - begun, rows <= WIDTH
        same = sure or _words(words_ahead(following, texts, LISTED, 4 * WIDTH)) == _words(found)
        before = [tuple(ids[:at]) for at in range(1, len(ids))]
        log_probs = torch.cat([following([()])[0], *([following(before)[0]] if before else [])])
    own = log_probs.gather(1, torch.tensor(ids, device=log_probs.device)[:, None])
    rank = 1 + int((log_probs > own).sum(1).max())
    hits = [(each.strip() or each[-1:]) == word for each in _words(found)]
    return {
        "beam 1": float(hits[0]), "beam 5": float(any(hits)), "rank 1": float(rank == 1),
        "rank 5": float(rank <= LISTED), "sure": float(sure), "same": float(same), "seconds": seconds,
    }  # fmt: skip


def _words(found: Sequence[Expected]) -> list[str]:
    return [word.word for word, _ in found]


def measured(lm: hebblm.LanguageModel, method: str, text: Encoded, places: int) -> dict[str, Any]:
    """Return the answers of a reader of one method at each place, in columns."""
    reader = lm.reader(method)
    vocabulary = reader.vocabulary
    assert isinstance(vocabulary, Subwords)
    texts, rows, read = PieceTexts(vocabulary), [], 0
    for begin, end, word in beginnings(text, places):
        reader.read(text.ids[read:begin])
        read = begin
        rows.append(asked(reader, texts, text.ids[begin:end], word))
    say(f"{method}: {np.mean([row['beam 5'] for row in rows]):.1%} among five")
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def gain(ours: Any, theirs: Any, where: Any) -> dict[str, Any]:
    """Return by how much ``theirs`` (P,) is right more often than ``ours``, with its paired interval."""
    return asdict(bootstrap_gains({BASE: 1 - ours, "other": 1 - theirs}, {"": where}, BOOTSTRAP)["other"][0])


def table(text: str) -> str:
    """Return the Markdown of one text."""
    path = FOLDER / f"words-{text}.json"
    document = read_json(path)
    columns = [Column("Method")]
    for part in ("all", "several"):
        columns += [Column(f"{part} ({document['words'][part]}): first"), Column("of five"), Column("gain")]
        columns += [Column("of five by rank"), Column("beam less rank")]
    rows = []
    for method, found in document["methods"].items():
        cells: list[str] = [name_of(unaliased(method))]
        for part in ("all", "several"):
            of_part = found[part]
            first, five, by_rank = (f"{100 * of_part[name]:.1f}" for name in ("beam 1", "beam 5", "rank 5"))
            cells += [first, five, _shown(of_part.get("gain")), by_rank, _shown(of_part["beam less rank"])]
        rows.append(tuple(cells))
    return f"{body(Table(text, '', tuple(columns), tuple(rows)))}\n- {origin(path, '../')}\n"


def _shown(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    ends = (None if found[key] is None else 100 * found[key] for key in ("gain", "low", "high"))
    return interval_text(Gain("", found["tokens"], *ends), "*", 1)


def main() -> int:
    """Measure every method on a text."""
    parser = argparse.ArgumentParser(prog="python -m recipes.accuracy_words", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=10_000, help="pieces of the text that are read, at most")
    parser.add_argument("--methods", default="base,knn,best")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    check_writable(options.output.absolute().parent)
    lm = hebblm.load(options.model, context=options.context)
    written = options.text.read_text(encoding="utf-8")
    text = lm.vocabulary.fresh().encode(written, include=False).cut(options.tokens)[0]
    chosen = beginnings(text, options.places)
    parts = {"all": np.ones(len(chosen), bool), "several": np.array([end - begin > 1 for begin, end, _ in chosen])}
    found = {name: measured(lm, unaliased(name), text, options.places) for name in options.methods.split(",")}
    methods: dict[str, Any] = {}
    for name, columns in found.items():
        methods[name] = {key: float(columns[key].mean()) for key in ("sure", "same")}
        methods[name] |= {"seconds": float(np.median(columns["seconds"])), "slowest": float(columns["seconds"].max())}
        for part, where in parts.items():
            of_part = methods[name][part] = {key: float(columns[key][where].mean()) for key in MEASURES}
            of_part["beam less rank"] = gain(columns["rank 5"], columns["beam 5"], where)
            if unaliased(name) != BASE and "base" in found:
                of_part["gain"] = gain(found["base"]["beam 5"], columns["beam 5"], where)
    about = provenance("python -m " + command_line("recipes.accuracy_words", sys.argv[1:]), device="cpu", seed=1111)
    digest = hashlib.sha256(written.encode()).hexdigest()
    counts = {part: int(where.sum()) for part, where in parts.items()}
    document = {"provenance": about, "text": {"name": options.text.name, "sha256": digest}, "words": counts}
    write_json(options.output, {**document, "pieces read": chosen[-1][0], "methods": methods})
    return 0


if __name__ == "__main__":
    sys.exit(main())
