"""Sources of hidden states: a stated synthetic mixture, or a trained model that reads its
corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from awd_lstm.document import CONFIG
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.errors import UserError
from hebblm.evaluation.training_text import training_states
from hebblm.memory import MemoryConfig, build_memory
from hebblm.models.awd import AwdBase, AwdModel
from hebblm.models.base import Ids
from hebblm.models.catalog import model_folder, trained_on
from hebblm.models.training import open_model
from hebblm.text import PreparedCorpus
from hebblm.text.binarize import prepared_corpus
from hebblm.types import Neighbors, OutputHead

CHUNK = 16_384  # entries made at a time
READ = 512  # tokens a model reads at a time


class SyntheticSource:
    """A mixture of Gaussians whose spread, spectrum and distances are near those of a trained
    LSTM's states.

    A state is a centre plus noise whose size varies from state to state; the variances of both fall
    as (j + 8)^-1.5 along randomly turned axes and add up to 8 (a 200-wide LSTM on Penn Treebank:
    7.9). A tenth of the queries are planted next to an entry, at a squared distance of 0.4 on
    average (there: the nearest per cent). The head has Zipfian biases and logits whose spread gives
    an entropy of about 5 nats (there: 4.9); labels are drawn from it, those of entries at their
    centre.

    """

    CENTRES = 64
    VARIANCE = 8.0
    BETWEEN = 0.65  # share of the variance that is the centres'
    UNEVENNESS = 0.4  # standard deviation of the logarithm of the noise's size
    LOGIT_STD = 2.2  # of the weights' part
    PLANTED = 10  # one query in so many stands next to an entry
    PLANTED_DISTANCE = 0.4  # mean squared distance to that entry
    POOL = 256  # labels drawn for each centre

    def __init__(self, dim: int, classes: int, *, seed: int, device: torch.device) -> None:
        self.dim, self.classes, self.seed, self.device = dim, classes, seed, device
        draw = torch.Generator().manual_seed(seed)
        spectrum = (torch.arange(dim) + 8.0) ** -1.5
        scales = (spectrum / spectrum.sum() * self.VARIANCE).sqrt()  # (D,)
        turn = torch.linalg.qr(torch.randn(dim, dim, generator=draw)).Q
        # (D, D): white noise to the mixture's spectrum
        self._axes = (scales[:, None] * turn).to(device)
        self._centres = (
            self.BETWEEN**0.5
            * torch.randn(self.CENTRES, dim, generator=draw).to(device)
            @ self._axes
        )
        weight = torch.randn(classes, dim, generator=draw) * (self.LOGIT_STD / self.VARIANCE**0.5)
        bias = -(torch.arange(classes) + 3.0).log()
        self.head = OutputHead(weight.to(device), bias.to(device))
        pools = [
            torch.multinomial(
                self.head.logits(part).softmax(1).cpu(), self.POOL, True, generator=draw
            )
            for part in torch.split(self._centres, 64)
        ]
        self._pools = torch.cat(pools)  # (C, pool)

    def entries(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield keys (M, D) and labels (M,) in chunks; the first of many entries are those of
        few.
        """
        for number, start in enumerate(range(0, count, CHUNK)):
            keys, labels = self._chunk(number)
            yield keys[: count - start], labels[: count - start]

    def queries(self, count: int) -> tuple[Tensor, Tensor]:
        """Return hidden states (N, D) and targets (N,) drawn from the head at each."""
        draw = torch.Generator().manual_seed(self.seed + 1)
        hidden, _ = self._states(count, draw)
        planted = range(0, count, self.PLANTED)
        near, _ = self._chunk(0)
        chosen = near[torch.arange(len(planted), device=self.device) % len(near)]
        nudge = (
            torch.randn(chosen.shape, generator=draw) * (self.PLANTED_DISTANCE / self.dim) ** 0.5
        )
        hidden[:: self.PLANTED] = chosen + nudge.to(self.device)
        targets = [
            torch.multinomial(self.head.logits(part).softmax(1).cpu(), 1, generator=draw)[:, 0]
            for part in torch.split(hidden, 64)
        ]
        return hidden, torch.cat(targets).to(self.device)

    def describe(self) -> dict[str, Any]:
        """Return the facts of its input that a measurement records."""
        return {
            "kind": "synthetic",
            "states": f"mixture of {self.CENTRES} Gaussians, total variance {self.VARIANCE:g}, one "
            "query in "
            f"{self.PLANTED} planted next to an entry",
            "seed": self.seed,
        }

    def _chunk(self, number: int) -> tuple[Tensor, Tensor]:
        """Return one chunk of entries, the same whenever it is asked for."""
        draw = torch.Generator().manual_seed(self.seed + 1000 + number)
        keys, centre = self._states(CHUNK, draw)
        picked = torch.randint(self.POOL, (CHUNK,), generator=draw)
        return keys, self._pools[centre, picked].to(self.device)

    def _states(self, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw states (N, D) and the centres (N,) that they belong to; low centres are the more
        frequent.
        """
        centre = (torch.rand(count, generator=draw) ** 3 * self.CENTRES).long()
        noise = torch.randn(count, self.dim, generator=draw).to(self.device) @ self._axes
        # Less the square, so that the mean square stays 1.
        size = (self.UNEVENNESS * torch.randn(count, 1, generator=draw) - self.UNEVENNESS**2).exp()
        noise *= size.to(self.device)
        return self._centres[centre.to(self.device)] + (1 - self.BETWEEN) ** 0.5 * noise, centre


@dataclass(slots=True)
class ModelSource:
    """A trained model: entries from its training text, queries from the validation text."""

    base: AwdBase
    model: AwdModel
    corpus: PreparedCorpus

    @property
    def head(self) -> OutputHead:
        """The model's softmax layer."""
        return self.base.head

    def entries(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield keys (M, D) and labels (M,) of the beginning of the training text, read as several
        streams.
        """
        left = count
        for keys, labels in training_states(self.model, self._beginning("train", count)):
            yield keys[:left], labels[:left]
            left -= len(keys)

    def queries(self, count: int) -> tuple[Tensor, Tensor]:
        """Return hidden states (N, D) and targets (N,) of the beginning of the validation text."""
        ids = torch.from_numpy(self._beginning("valid", count).astype("int64")).to(
            self.head.weight.device
        )
        self.base.reset()
        hidden = [self.base.read(part) for part in torch.split(ids[:-1], READ)]
        return torch.cat(hidden), ids[1:]

    def describe(self) -> dict[str, Any]:
        """Return the facts of its input that a measurement records."""
        return {
            "kind": "model",
            "states": f"{self.model.folder.name} on {self.corpus.meta.name}",
            "weights_sha256": self.model.sha256,
        }

    def _beginning(self, split: str, count: int) -> Ids:
        """Return the tokens (T,) of a text that have ``count`` states with a label each."""
        tokens = self.corpus.tokens(split)
        if len(tokens) <= count:
            raise UserError(
                f"{self.corpus.meta.name} {split} has {len(tokens)} tokens, too few for {count} "
                "states; ask for fewer"
            )
        return tokens[: count + 1]


Source = SyntheticSource | ModelSource
"""Gives entries for a memory, and queries with the words that follow them; no query is an entry."""


def open_source(checkpoint: Path, device: torch.device) -> ModelSource:
    """Open a trained model, by its folder or the name of one that ships, and the corpus it was
    trained on.
    """
    folder = model_folder(checkpoint)
    if folder is None or not (folder / CONFIG).is_file():
        remedy = "name a folder of hebblm-train, or a model that ships (hebblm-eval --models)"
        raise UserError(f"no checkpoint at {checkpoint}; {remedy}")
    trained = trained_on(folder)
    if "name" not in trained:
        raise UserError(
            f"{checkpoint} does not say what it was trained on; name a model of hebblm-train"
        )
    prepared = prepared_corpus(trained["name"], trained.get("normalization", "raw"))
    model = open_model(folder, prepared.meta.dictionary_hash, device)
    return ModelSource(model.base(), model, prepared)


def filled(source: Source, count: int) -> tuple[Tensor, Tensor]:
    """Return the keys (M, D) and labels (M,) of ``count`` entries as two tensors."""
    keys, labels = zip(*source.entries(count), strict=True)
    return torch.cat(keys), torch.cat(labels)


@dataclass(frozen=True, slots=True)
class Batch:
    """Queries (N, D) with all that adaptation needs; ``counts`` (V,) says how often each class is
    among the entries.
    """

    head: OutputHead
    hidden: Tensor
    targets: Tensor
    neighbors: Neighbors
    counts: Tensor

    def given(self) -> tuple[Tensor, Neighbors, OutputHead]:
        """Return the first arguments of every form."""
        return self.hidden, self.neighbors, self.head

    def first(self, rows: int, k: int | None = None) -> Batch:
        """Return the same for the first queries only, and only the ``k`` nearest neighbours of
        each.
        """
        near = self.neighbors
        parts = (near.keys, near.values, near.distances, near.mask, near.log_normalizers)
        part = Neighbors(*(each[:rows, :k].contiguous() for each in parts if each is not None))
        return Batch(self.head, self.hidden[:rows], self.targets[:rows], part, self.counts)

    def double(self) -> Batch:
        """Return the same in double precision."""
        near, bias = self.neighbors, self.head.bias
        logs = None if near.log_normalizers is None else near.log_normalizers.double()
        wide = Neighbors(near.keys.double(), near.values, near.distances.double(), near.mask, logs)
        head = OutputHead(self.head.weight.double(), None if bias is None else bias.double())
        return Batch(head, self.hidden.double(), self.targets, wide, self.counts)


@torch.no_grad()
def make_batch(source: Source, *, entries: int, queries: int, k: int) -> Batch:
    """Search ``entries`` entries of a source exactly for the neighbours of its first queries.

    The entries carry the normalisers of their base logits, as they do with a fixed base.
    """
    head = source.head
    memory = build_memory(head.weight.shape[1], MemoryConfig(index="exact"), head.weight.device)
    counts = torch.zeros(head.weight.shape[0], dtype=torch.int64, device=head.weight.device)
    for keys, labels in source.entries(entries):
        memory.add(keys, labels, log_normalizers(keys, head))
        counts += torch.bincount(labels, minlength=len(counts))
    hidden, targets = source.queries(queries)
    return Batch(head, hidden, targets, memory.search(hidden, k), counts)
