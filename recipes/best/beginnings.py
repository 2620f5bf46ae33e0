"""Fits the weights by which the gate of ``best`` differs at the beginning of a text, and writes
them to its module.

Readers read three quarters of each text of ``recipes.lookup`` that chooses values. Then they
predict the beginnings of lines of the rest, and of the other texts, which the memory does not know.
The weights with the least mean loss win; own lines and others weigh the same, and so do all texts
and models. What the gate learned from the text read stays.

    python -m recipes.best.beginnings --output-path results/best-beginnings
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import hebblm
from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.best import BEGINNINGS, FEATURES, WEIGHTS
from hebblm.adapt.methods.gate import Gated
from hebblm.api.language_model import LanguageModel
from hebblm.io.files import atomic_path, write_json
from hebblm.io.provenance import command_line, provenance
from hebblm.reader.reader import Reader
from recipes.lookup.texts import CHOOSING

PROG = "python -m recipes.best.beginnings"
MODELS = "smollm2-135m,llama-wt2-small,small-wt2-raw"
OWN, OTHERS = 40, 8  # lines
TOKENS = 24  # of a line
LEAST_WORDS = 5  # of a line
PULL = 3e-3  # times half the square of the weights
SEED = 1
MODULE = Path(__file__).parents[2] / "hebblm" / "adapt" / "methods" / "best.py"


class Beginnings(NamedTuple):
    """Lines of a text after another one, or its own beginning, was read."""

    model: str
    read: str
    text: str
    gate: F.LearnedGate  # as it was after reading
    losses: Tensor  # (N, C) nats, of all lines
    features: Tensor  # (N, F)
    places: Tensor  # (N,) of each token in its line

    @property
    def own(self) -> bool:
        return self.read == self.text

    def loss(self, weights: Tensor) -> Tensor:
        """Return the mean loss with so many weights (C, F) at beginnings, nats."""
        size = self.features.shape[1]
        logits = self.features @ self.gate.weights[:, :size].t()
        logits = logits + (self.features * (-self.places / F.FADING).exp()[:, None]) @ weights.t()
        return F.gated_losses(self.losses, logits.log_softmax(1)).mean()


def evidence(reader: Reader, predictor: Gated, line: str) -> tuple[Tensor, Tensor]:
    """Return losses under the parts (n, C) and features (n, F) of the first tokens of a line."""
    ids = list(map(int, reader.vocabulary.encode(line, include=False).ids))[:TOKENS]
    context, labels = reader.session.context, reader.session.source.readable(torch.tensor(ids))
    with torch.no_grad(), reader.session.base.preserve_state():
        states = reader.session.base.read(torch.cat([reader.session.last, labels[:-1]]))
        assert context.ngrams is not None
        before = np.stack([context.ngrams.context_after(ids[:at]) for at in range(len(ids))])
        found = predictor.evidence(EvalBatch(states, context, contexts=before), labels)
    return found[:, : len(predictor.predictors)], found[:, len(predictor.predictors) :]


def beginnings(lm: LanguageModel, read: str) -> Iterable[Beginnings]:
    """Yield the beginnings of every text that chooses, after the first part of one was read."""
    reader = lm.reader("best")
    reader.read(CHOOSING[read]().learned, name=read)
    reader.begin()
    predictor = reader.session.predictor
    assert isinstance(predictor, Gated)
    gate = reader.session.context.mixture_weights[predictor]
    for text, made in CHOOSING.items():
        lines = [line for line in made().asked.split("\n") if len(line.split()) >= LEAST_WORDS]
        random.Random(SEED).shuffle(lines)
        found = [
            evidence(reader, predictor, line) for line in lines[: OWN if text == read else OTHERS]
        ]
        places = torch.cat([torch.arange(len(losses), dtype=torch.float64) for losses, _ in found])
        losses, features = (torch.cat(rows) for rows in zip(*found, strict=True))
        yield Beginnings(lm.name, read, text, gate, losses, features, places)


def fitted(parts: Sequence[Beginnings]) -> Tensor:
    """Return the weights (C, F) whose mean loss and pull are least."""
    size = len(WEIGHTS), parts[0].features.shape[1]
    weights = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [weights], max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-8
    )
    own, others = ([part for part in parts if part.own is wanted] for wanted in (True, False))

    def objective() -> Tensor:
        search.zero_grad()
        total = PULL / 2 * weights.square().sum()
        for group in (own, others):
            total = total + sum(part.loss(weights) for part in group) / len(group) / 2
        total.backward()  # type: ignore[no-untyped-call]
        return total

    search.step(objective)  # type: ignore[no-untyped-call]
    return weights.detach()


def written(module: str, weights: np.ndarray, about: str) -> str:
    """Return the text of the module that ships the weights, with others in their place."""
    table = []
    for name, row in zip(BEGINNINGS, np.round(weights, 3) + 0.0, strict=True):
        first, last = (
            ", ".join(f"{x:g}" for x in half)
            for half in (row[: len(FEATURES)], row[len(FEATURES) :])
        )
        table.append(f'    "{name}": (\n        {first},\n        {last},\n    ),\n')
    before, _, rest = module.partition("# What it adds")
    kept = rest[rest.index("# fmt: on\n") :]
    head = (
        "# What it adds at the beginning of a text; written by recipes/best/beginnings.py.\n# "
        f"{about}\n# fmt: off\n"
    )
    return (
        f"{before}{head}BEGINNINGS: dict[str, tuple[float, ...]] = {{\n{''.join(table)}}}\n{kept}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog=PROG, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument(
        "--output-path", type=Path, required=True, help="folder for what is noted, and what is lost"
    )
    asked = parser.parse_args(arguments)
    by = provenance(command_line(PROG, arguments), device="cpu", seed=SEED)
    asked.output_path.mkdir(parents=True, exist_ok=True)
    parts: list[Beginnings] = []
    read = [text for text in CHOOSING if " after " not in text]
    for model in asked.models.split(","):
        for text in read:
            kept = asked.output_path / f"{model}, {text}.pt"
            if not kept.is_file():
                torch.save(list(beginnings(hebblm.load(model), text)), kept)
                print(kept.stem, flush=True)
            parts += torch.load(kept, weights_only=False)
    weights, nll = fitted(parts), {}
    zeros = torch.zeros_like(weights)
    for text in read:
        unseen = fitted([part for part in parts if text not in (part.read, part.text)])
        for own in (True, False):
            group = [part for part in parts if part.read == text and part.own is own]
            nll[f"{text}, {'own' if own else 'other'} lines"] = row = {
                name: float(sum(part.loss(each) for part in group) / len(group))
                for name, each in (
                    ("fitted", weights),
                    ("on the others", unseen),
                    ("as further on", zeros),
                )
            }
            row["base"] = float(sum(part.losses[:, 0].mean() for part in group) / len(group))
            print(
                f"{text}, {'own' if own else 'other'}",
                {name: round(loss, 3) for name, loss in row.items()},
                flush=True,
            )
    write_json(asked.output_path / "beginnings.json", {"nll": nll, "provenance": by})
    about = f"Fitted on lines of {', '.join(read)};\n# by {', '.join(asked.models.split(','))}."
    with atomic_path(MODULE) as temporary:
        temporary.write_text(written(MODULE.read_text(), weights.numpy(), about))


if __name__ == "__main__":
    main()
