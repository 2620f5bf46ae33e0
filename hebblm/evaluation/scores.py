"""Losses and costs of a pass over a text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from hebblm.adapt.batch import SEARCH, EvalBatch
from hebblm.adapt.methods.mbpa import Safeguards
from hebblm.adapt.work import Clock, Work
from hebblm.online.layout import Layout
from hebblm.online.session import Profiler
from hebblm.runtime.ranks import Ranks

SECONDS = ("seconds", "own_seconds", "shared_seconds")
COUNTS = ("loss_increased", "retried")


@dataclass(slots=True)
class EvaluationScores:
    """Losses and costs of a pass over the stream.

    Args:
        nll: by method, (T,) float32 losses in nats.
        seconds: by method, time that it takes alone: base, retrieval if it uses it, the work that
            it shares with others, and its own.
        loss_increased: by method, number of queries whose neighbours' loss rose during adaptation;
            empty unless it is checked.
        retried: by method, number of these queries that were run again at a stable rate; empty
            unless checked.
        errors: by method, measured errors of the fast form, nats a token; empty unless checked.
        base_seconds: reading and learning of the base.
        ngram_seconds: counting of n-grams, charged to methods that use them.
        retrieval_seconds: search and update of the memory.
        own_seconds: by method, its work for itself alone.
        shared_seconds: by the name of work that several methods may share, its time when done once.
        retrieving: the methods that use retrieval.
        earlier_seconds: wall-clock time of processes that were interrupted.
    """

    nll: dict[str, npt.NDArray[np.float32]]
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    loss_increased: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    errors: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    base_seconds: float = 0.0
    retrieval_seconds: float = 0.0
    ngram_seconds: float = 0.0
    own_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    shared_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    retrieving: set[str] = field(default_factory=set)
    earlier_seconds: float = 0.0

    def charge(self, works: Mapping[str, Work]) -> None:
        """Charge methods for their work on a mini-batch, and each in full for every piece of work
        that it uses.
        """
        pieces = {name: work.pieces() for name, work in works.items()}
        for name, work in works.items():
            self.own_seconds[name] += work.seconds
            self.seconds[name] += work.seconds + sum(piece.seconds for piece in pieces[name])
            if any(piece.name == SEARCH for piece in pieces[name]):
                self.retrieving.add(name)
        for piece in set().union(*pieces.values()):
            self.shared_seconds[piece.name] += piece.seconds

    def count(self, name: str, needed: Safeguards) -> None:
        """Add the outcome of a mini-batch's queries."""
        self.loss_increased[name] += int(needed.loss_increased.sum())
        self.retried[name] += int(needed.retried.sum())
        self.errors[name] += needed.errors.tolist()

    def charge_shared_work(self, counting: Collection[str] = ()) -> None:
        """After the text is read, charge every method for the base, and for retrieval if it uses
        that.

        ``counting`` names the methods that use n-grams.
        """
        for name in self.nll:
            self.seconds[name] += self.base_seconds
            if name in self.retrieving:
                self.seconds[name] += self.retrieval_seconds
            if name in counting:
                self.seconds[name] += self.ngram_seconds
        self.retrieval_seconds += self.ngram_seconds
        self.retrieval_seconds += self.shared_seconds.pop(SEARCH, 0.0)

    def of_all(self, ranks: Ranks, layout: Layout) -> EvaluationScores:
        """Return the scores of all ranks: all losses, the sums of counts, and their mean time."""
        if ranks.size == 1:
            return self
        nll = {
            name: ranks.all_gather(torch.from_numpy(losses[layout.text])).numpy()
            for name, losses in self.nll.items()
        }
        together = EvaluationScores(nll, earlier_seconds=self.earlier_seconds)
        for totals in ranks.all_gather_object(self.totals()):
            together.add(totals, ranks.size)
        for errors in ranks.all_gather_object(self.errors):
            for name, values in errors.items():
                together.errors[name] += values
        return together

    def totals(self) -> dict[str, Any]:
        """Return the numbers that :meth:`add` adds up, as JSON."""
        by_name = {name: dict(getattr(self, name)) for name in (*SECONDS, *COUNTS)}
        whole = {
            "base": self.base_seconds,
            "retrieval": self.retrieval_seconds,
            "ngram": self.ngram_seconds,
        }
        return {**by_name, **whole, "retrieving": sorted(self.retrieving)}

    def add(self, totals: Mapping[str, Any], ranks: int = 1) -> None:
        """Add the counts of one of several ranks, or of an earlier process, and its share of the
        mean time.
        """
        for name in SECONDS:
            for key, seconds in totals[name].items():
                getattr(self, name)[key] += seconds / ranks
        for name in COUNTS:
            getattr(self, name).update(totals[name])
        self.base_seconds += totals["base"] / ranks
        self.retrieval_seconds += totals["retrieval"] / ranks
        self.ngram_seconds += totals["ngram"] / ranks
        self.retrieving.update(totals["retrieving"])


class Timing(Profiler):
    """Times the parts of a session, and charges them in scores.

    Args:
        scores: takes the times.
        clock: in seconds.
    """

    def __init__(self, scores: EvaluationScores, clock: Clock) -> None:
        self._scores = scores
        self._clock = clock
        self._works: dict[str, Work] = {}  # of the mini-batch under way, by method

    @contextmanager
    def part(self, name: Literal["base", "retrieval", "ngram"]) -> Iterator[None]:
        """Charge reading and learning of the base, update of the memory, or counting."""
        started = self._clock()
        yield
        seconds = self._clock() - started
        if name == "base":
            self._scores.base_seconds += seconds
        elif name == "retrieval":
            self._scores.retrieval_seconds += seconds
        else:
            self._scores.ngram_seconds += seconds

    @contextmanager
    def unit(self, batch: EvalBatch) -> Iterator[None]:
        """Charge each method for a mini-batch when all have scored it."""
        with self.part("base"):  # its logits, which no method pays for alone
            _ = batch.log_normalizers
        self._works = {}
        yield
        self._scores.charge(self._works)

    @contextmanager
    def predictor(self, name: str, batch: EvalBatch) -> Iterator[None]:
        """Time one method."""
        with batch.stopwatch.time(name) as work:
            yield
        self._works[name] = work
