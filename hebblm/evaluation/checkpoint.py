"""Checkpoints of a run's passes over a text, on disk: a later process goes on from there, with the
same numbers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.adapt.context import Context, Observation
from hebblm.errors import UserError
from hebblm.evaluation.observers import Kept
from hebblm.evaluation.scores import EvaluationScores
from hebblm.io.groups import prefixed, under
from hebblm.io.tensors import placed, read_tensors, write_tensors
from hebblm.online.layout import Layout
from hebblm.online.ranks import Observed
from hebblm.online.session import OF_BASE, OnlineSession, State
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import ALONE, Ranks

KIND = "hebblm-position"
STATE = "position.safetensors"
EVERY = 30.0  # seconds between two savings: an interruption loses at most that much work
MOST = 1 << 28  # bytes of entries that wait to be saved


@dataclass(slots=True)
class RunCheckpoint:
    """Checkpoints of a run's passes over its text, one after the other; see
    :func:`hebblm.evaluation.resume.resumable`.

    Args:
        folder: folder of the run.
        started: time when this process began.
        last: time of the last saving.
        passes: number of passes that were begun.
        within: whether a pass is running, which is saved before an interruption ends it.
        stopped: whether it must end.
    """

    folder: Path
    started: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    passes: int = 0
    within: bool = False
    stopped: bool = False

    def next_pass(self, title: str, observers: Sequence[Kept] = ()) -> PassCheckpoint:
        """Return the checkpoint of the next pass: its title, and whose notes to save."""
        self.passes += 1
        return PassCheckpoint(self, self.folder / f"{self.passes:04d}", title, tuple(observers))

    def interrupt(self, number: int, frame: Any) -> None:
        """End after a running pass is saved; the second time, or outside a pass, end at once."""
        if not self.within or self.stopped:
            raise KeyboardInterrupt
        self.stopped = True
        log(
            "interrupted: your position after these tokens is saved; press Ctrl-C again to stop at "
            "once"
        )

    def clear(self) -> None:
        """Remove everything, states first, so that a remaining part is never taken for the
        whole.
        """
        for state in self.folder.glob(f"*/*{STATE}"):
            state.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(slots=True)
class PassCheckpoint:
    """Place of one pass in its text.

    Data that only grow (losses, entries of the memories, notes) are written in parts, each once.
    The state after the last part is one file. It replaces the former state when its part is there,
    and says how many parts belong to it. Resuming writes entries to the memory in the same steps as
    before, so that an index is trained on the same entries.
    """

    run: RunCheckpoint
    folder: Path
    title: str
    observers: tuple[Kept, ...]
    _session: OnlineSession[Any] | None = None
    _scores: EvaluationScores = field(default_factory=lambda: EvaluationScores({}))
    _layout: Layout = field(default_factory=lambda: Layout((), ()))
    _parts: int = 0
    _begin: int = 0  # of the data that are not saved
    _errors: dict[str, int] = field(default_factory=dict)  # number of saved ones
    # step, context and observation
    _written: list[tuple[int, int, Observation]] = field(default_factory=list)
    _bytes: int = 0  # of the observations
    _steps: int = 0
    _ranks: Ranks = ALONE
    # where the base read ahead from, and its state there
    _base: tuple[int, State] = (0, {})
    _begun: float = 0.0  # seconds on the clock
    _before: tuple[int, float] = (0, 0.0)  # bytes that the ranks had sent, and for how long
    # steps with sizes (L, 2), and labels
    _recalled: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def _contexts(self) -> Sequence[Context]:
        assert self._session is not None, "a pass begins before it is saved"
        return self._session.contexts

    @property
    def _device(self) -> torch.device:
        return self._contexts[0].head.weight.device

    def begin(
        self,
        session: OnlineSession[Any],
        scores: EvaluationScores,
        layout: Layout,
        ranks: Ranks = ALONE,
    ) -> tuple[int, int]:
        """Load the state of an earlier process into session, scores and notes.

        Return the place in the streams up to which tokens are scored, and the place up to which the
        base has read. The base may stand earlier: it reads ahead, and reads that part again.

        Several ranks go on from the last place that all of them have saved.
        """
        self._session = session
        self._scores = scores
        self._layout = layout
        self._ranks = ranks
        traffic = ranks.traffic
        self._before = traffic.sent, traffic.seconds
        self._begun = time.monotonic()
        self.run.within = True
        names = [path.name for path in self.folder.glob(f"*{STATE}")]
        common = set.intersection(*map(set, ranks.all_gather_object(names)))
        if not common:
            return 0, 0
        name = max(common)
        self._remove_states_but(name)
        record, state = self._read(name)
        self._parts = record["parts"]
        place = int(record["place"])
        for index in range(self._parts):
            self._recall(*self._read(_part_name(index)))
        if layout.spread:
            self._tell_memory()
        traffic.sent += record["sent"]
        traffic.seconds += record["waited"]
        session.load_state_dict(state)
        scores.add(record["totals"])
        scores.earlier_seconds = record["clock"]
        done = sum(min(length, place) for length in layout.lengths)
        log(f"{self.title} continues after its first {done:,} of {sum(layout.lengths):,} tokens")
        return place, int(record["read"])

    def keep_base(self, place: int) -> None:
        """Keep the base's state before it reads ahead from a place of the streams."""
        assert self._session is not None, "a pass begins before the base reads"
        self._base = place, self._session.source.state_dict()

    def observe_ranks(self, observed: Observed, *, written: bool) -> None:
        """Record observations that were learned together, before the next search; ``written``: to
        the memories, too.
        """
        if not written:
            return
        for context, observation in observed:
            owner = next(number for number, one in enumerate(self._contexts) if one is context)
            self._written.append((self._steps, owner, observation))
            self._bytes += observation.queries.numel() * observation.queries.element_size()
        self._steps += 1

    def reach(self, place: int, read: int) -> None:
        """Save, if it is time, that everything before a place of the streams was scored and learned
        from.

        Args:
            place: place of the streams.
            read: place up to which the base has read, at or beyond ``place``. Beyond it, what is
                saved is the base's state of :meth:`keep_base`.

        Raises:
            KeyboardInterrupt: Ctrl-C came before.
            UserError: the cache has no space left.
        """
        run = self.run
        now = time.monotonic()
        ended = place >= self._layout.longest
        due = now - run.last >= EVERY or (ended and now - run.started >= EVERY)
        if any(self._ranks.all_gather_object(due or run.stopped or self._bytes > MOST)):
            self._save(place, read)
            run.last = time.monotonic()
        run.within = not ended
        if run.stopped:
            raise KeyboardInterrupt

    def _save(self, place: int, read: int) -> None:
        """Write a part, then the state after it."""
        scores = self._scores
        if place > self._begin:
            span = {"begin": self._begin, "end": place}
            write_tensors(self.folder / _part_name(self._parts), self._part(place), KIND, span)
            self._parts += 1
            self._begin = place
        assert self._session is not None, "a pass begins before it is saved"
        state = self._session.state_dict()
        if read > place:  # the base is ahead of the place
            read, base = self._base
            others = {key: value for key, value in state.items() if not key.startswith(OF_BASE)}
            state = {**others, **prefixed(OF_BASE, base)}
        record = {
            "place": place,
            "read": read,
            "parts": self._parts,
            "totals": scores.totals(),
            "clock": scores.earlier_seconds + time.monotonic() - self._begun,
            "sent": self._ranks.traffic.sent - self._before[0],
            "waited": self._ranks.traffic.seconds - self._before[1],
        }
        # One of several ranks may be killed before it has saved: the former state stays until all
        # have this one.
        name = STATE if self._ranks.size == 1 else f"{place:012d}-{STATE}"
        write_tensors(self.folder / name, state, KIND, record)
        self._ranks.wait()
        self._remove_states_but(name)

    def _remove_states_but(self, name: str) -> None:
        for path in self.folder.glob(f"*{STATE}"):
            if path.name != name:
                path.unlink()

    def _part(self, place: int) -> State:
        """Return the data added since the last part: losses, measured errors, entries, notes."""
        scores = self._scores
        written = self._written
        part: State = {}
        for index, (name, nll) in enumerate(scores.nll.items()):
            part[f"nll {index}"] = torch.from_numpy(nll[self._places(self._begin, place)])
            since = self._errors.get(name, 0)
            part[f"errors {index}"] = torch.tensor(scores.errors[name][since:], dtype=torch.float64)
            self._errors[name] = len(scores.errors[name])
        for index, observer in enumerate(self.observers):
            part |= prefixed(f"notes {index}: ", observer.state_dict())
        if written:
            dtype = self._contexts[0].memory.dtype
            sizes = []
            keys = []
            labels = []
            logs = []
            for step, owner, observation in written:
                sizes.append((step, owner, len(observation.labels)))
                keys.append(observation.queries.to(dtype))
                labels.append(observation.labels)
                if observation.key_normalizers is not None:
                    logs.append(observation.key_normalizers)
            part["sizes"] = torch.tensor(sizes)  # (L, 3)
            part["keys"] = torch.cat(keys)
            part["labels"] = torch.cat(labels)
            if logs:
                part["log normalizers"] = torch.cat(logs)
        self._written = []
        self._bytes = 0
        return part

    def _recall(self, record: Mapping[str, Any], part: State) -> None:
        scores = self._scores
        for index, (name, nll) in enumerate(scores.nll.items()):
            nll[self._places(record["begin"], record["end"])] = part[f"nll {index}"].cpu().numpy()
            scores.errors[name] += part[f"errors {index}"].tolist()
            self._errors[name] = len(scores.errors[name])
        self._begin = int(record["end"])
        for index, observer in enumerate(self.observers):
            observer.load_state_dict(under(f"notes {index}: ", part))
        if "sizes" not in part:
            return
        self._recalled.append((part["sizes"][:, [0, 2]], part["labels"]))
        start = 0
        former = -1
        for step, owner, size in part["sizes"].tolist():
            if step != former:  # search as before: an index is trained when it is searched
                for context in self._contexts:
                    context.memory.refresh()
            memory = self._contexts[owner].memory
            rows = slice(start, start + size)
            logs = part["log normalizers"][rows] if "log normalizers" in part else None
            memory.add(part["keys"][rows], part["labels"][rows], logs)
            start += size
            former = step
            self._steps = step + 1

    def _tell_memory(self) -> None:
        """Give a shared memory the entries that each rank wrote, step by step."""
        device = self._device
        nothing = torch.zeros(0, 2, dtype=torch.int64, device=device)
        own_sizes = [nothing]
        own_labels = [nothing[:, 0]]
        for rows, recalled in self._recalled:
            own_sizes.append(rows)
            own_labels.append(recalled)
        sizes = self._ranks.all_gather_rows(torch.cat(own_sizes))  # (L, 2) each
        labels = self._ranks.all_gather_rows(torch.cat(own_labels))
        self._recalled = []
        self._steps = 0
        for rows in sizes:
            if len(rows):
                self._steps = max(self._steps, int(rows[-1, 0]) + 1)
        steps = []
        for rows, written in zip(sizes, labels, strict=True):
            counts = torch.zeros(self._steps, dtype=torch.int64, device=device)
            counts.index_add_(0, rows[:, 0], rows[:, 1])
            steps.append(torch.split(written, counts.tolist()))
        for together in zip(*steps, strict=True):
            self._contexts[0].memory.observe_ranks(together)

    def _places(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Return the places in the text of the tokens of all streams between two places."""
        layout = self._layout
        runs = []
        for stream in layout.own_streams:
            first = layout.begins[stream]
            length = layout.lengths[stream]
            runs.append(np.arange(first + min(begin, length), first + min(end, length)))
        return np.concatenate(runs)

    def _read(self, name: str) -> tuple[dict[str, Any], State]:
        """Return record and tensors of a file, on the base's device."""
        remedy = f"delete {self.run.folder} to start the run again"
        tensors, record = read_tensors(self.folder / name, KIND, remedy)
        if not record:
            raise UserError(f"{self.folder / name} has no record of its place; {remedy}")
        return record, {key: placed(tensor, self._device) for key, tensor in tensors.items()}


def _part_name(index: int) -> str:
    return f"part-{index:05d}.safetensors"
