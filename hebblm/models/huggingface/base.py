"""A causal language model of ``transformers`` that reads streams longer than its context, fixed or
learning.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from hebblm.errors import UserError
from hebblm.io.groups import prefixed, under
from hebblm.models.base import GradientBase, State
from hebblm.models.huggingface.branches import MOST, Tree, branch_states, may_branch
from hebblm.models.huggingface.network import Network, replace_tensors, tensors_of, turn
from hebblm.models.huggingface.probe import agree, holds, is_exact
from hebblm.models.update import BaseUpdate
from hebblm.types import OutputHead

TOKENS = "tokens"
BESIDE = 4096  # tokens that continuations of one text hold together, each with the text before


class HuggingFaceBase(GradientBase):
    """Causal language model of ``transformers`` that reads one stream, or several side by side.

    A model with attention reads in windows. After ``context`` tokens it reads the last ``context -
    stride`` of them again and goes on from there. So it predicts each token once, with at least
    that many tokens before it. If a tokenizer puts a token before every text, it replaces the first
    of them. A model whose state does not grow carries it on from the beginning of the stream.

    The weights are the trained model's own. A base that learns has copies of the learning weights,
    in float32 if the model has half precision, which would lose most steps.

    Args:
        network: the trained network; it never changes.
        own: weights in place of the network's, by name.
    """

    def __init__(
        self,
        network: Network,
        update: BaseUpdate | None = None,
        learned: dict[str, nn.Parameter] | None = None,
        streams: int = 1,
    ) -> None:
        super().__init__(update, streams)
        self._trained = network
        self._given = learned or {}
        self._cache: object = None
        self.reset()

    def reset(self) -> None:
        super().reset()
        self._own: dict[str, nn.Parameter] = dict(self._given)
        self._begin()

    @property
    def head(self) -> OutputHead:
        head = self._trained.head_with(self._own)
        if head is self._trained.head:
            return head
        return OutputHead(
            head.weight.detach(), None if head.bias is None else head.bias.detach(), head.cap
        )

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the weights that may learn, by name; from then on they are this base's own."""
        if not self._own:
            copies = {}
            for name in self._trained.learns:
                weight = self._trained.parameters[name]
                precise = torch.promote_types(weight.dtype, torch.float32)
                copies[name] = nn.Parameter(weight.to(precise, copy=True))
            self._own = copies
        return self._own

    def _states(self, ids: Tensor) -> Tensor:
        if self.tracked:
            self.parameters()
        trained = self._trained
        parts = []
        while ids.shape[1]:
            room = (trained.context - self._window.shape[1]) or trained.stride
            parts.append(self._advance(ids[:, :room]))
            ids = ids[:, room:]
        width = trained.head.weight.shape[1] + trained.key_width * trained.keyed
        if parts:
            return torch.cat(parts, 1)
        return trained.head.weight.new_zeros(self._streams, 0, width)

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        head = self._trained.head_with(self._own)
        return F.cross_entropy(head.logits(hidden[..., : head.weight.shape[1]]), targets)

    def stream_state(self) -> State:
        """Return the tokens of the window, to read again later, or a recurrent model's state.

        For a model that learns also keys and values of the window: weights that have learned since
        would compute others.
        """
        window = self._window if self._streams > 1 else self._window[0]
        state = {TOKENS: window.clone()}
        if self._cache is not None and (self._recurrent or self.tracked):
            for name, tensor in tensors_of(self._cache):
                state[name] = tensor.clone()
        return state

    def load_stream_state(self, state: State) -> None:
        self._begin()
        carried = {name: tensor for name, tensor in state.items() if name != TOKENS}
        window = state[TOKENS].view(self._streams, -1)
        if window.shape[1] > self._trained.context:  # it was saved by a model with a longer one
            window = window[:, -self._trained.context :]
            carried = {}
        with torch.no_grad():
            if window.shape[1]:
                self._advance(window)
            elif carried:
                # makes what holds the tensors
                self._advance(self._trained.probe_ids[:1].expand(self._streams, 1))
            if carried:
                self._carry(carried)
        self._window = window.clone()

    def state_dict(self) -> State:
        """Return the state with keys and values of the window as they were computed."""
        if self._cache is None or self._recurrent or self.tracked:
            carried = {}
        else:
            carried = dict(tensors_of(self._cache))
        return {**super().state_dict(), **prefixed("cache ", carried)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if carried := under("cache ", state):
            self._carry(carried)

    def frozen(self) -> HuggingFaceBase:
        weights = {
            name: nn.Parameter(weight.detach().clone()) for name, weight in self._own.items()
        }
        return HuggingFaceBase(self._trained, learned=weights)

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        window = self._window
        cache = self._cache
        hidden = self._hidden
        self._cache = copy.deepcopy(cache)
        try:
            yield
        finally:
            self._window = window
            self._cache = cache
            self._hidden = hidden

    @property
    def max_rewind(self) -> int:
        """Tokens until the window moves on."""
        if self._recurrent:
            raise UserError(
                f"{type(self._trained.model).__name__} carries a state that cannot go back; leave "
                "draft out"
            )
        return (self._trained.context - self._window.shape[1]) or self._trained.stride

    def rewind(self, count: int) -> None:
        """Cut the window, and the carried state if possible; if not, the window is read again."""
        if not count:
            return
        self._window = self._window[:, : self._window.shape[1] - count]
        try:
            cache: Any = self._cache
            if not all(getattr(layer, "is_croppable", False) for layer in cache.layers):
                raise ValueError("a layer keeps more than one state a token")
            cache.crop(-count)
        except (
            AttributeError,
            ValueError,
            RuntimeError,
        ):  # not every cache can be cut; the window is read again
            self._cache = None

    @torch.no_grad()
    def continuations(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the hidden states of several continuations, at once if that does not change
        them.
        """
        if len(rows) < 2:
            return super().continuations(rows)
        if self._takes_trees(max(map(len, rows))):
            states: list[Tensor] = []
            for part in _parts(rows, MOST):
                states += self._in_a_tree(part)
            return states
        if not self._branching:
            return super().continuations(rows)
        # Each continuation in a batch has a copy of the text before it.
        most = max(1, BESIDE // (self._window.shape[1] + max(map(len, rows)) + 1))
        states = []
        for at in range(0, len(rows), most):
            states += self._beside(rows[at : at + most])
        return states

    def _takes_trees(self, longest: int) -> bool:
        """Return whether continuations of so many tokens can be read in one pass from here."""
        if self._streams > 1 or self._anew or self._trained.steps != "many":
            return False
        if self._window.shape[1] + longest > self._trained.context:  # the window moves on in them
            return False
        return may_branch(self._cache) and self._trees_hold

    def _in_a_tree(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the hidden states of continuations read in one pass over their tree."""
        tree = Tree.of([row.to(self._window.device) for row in rows])
        before = self._window.shape[1]
        states = branch_states(self._trained, self._cache, before, tree, self._own)
        return [states[path] for path in tree.places]

    def _beside(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the hidden states of continuations read as one batch, the shorter ones padded at
        their end.
        """
        if len(rows) == 1:
            return super().continuations(rows)
        base = HuggingFaceBase(self._trained, learned=self._own, streams=len(rows))
        base._window = self._window.expand(len(rows), -1)
        shared = {}
        if self._cache is not None:
            shared = {id(tensor): tensor for _, tensor in tensors_of(self._cache)}

        def repeated(_: object, one: Tensor) -> Tensor:
            if one.ndim > 1 and len(one) == 1:
                return one.repeat_interleave(len(rows), 0)
            return one

        if shared:  # what holds the tensors is copied, they themselves are repeated
            base._cache = replace_tensors(copy.deepcopy(self._cache, shared), repeated)
        states = base.read(pad_sequence(list(rows), batch_first=True))
        return [states[b, : len(row)] for b, row in enumerate(rows)]

    @property
    def _branching(self) -> bool:
        """Whether continuations of one beginning have the same states in a batch as alone."""
        return self._alike("batch", lambda base, rows: base._beside(rows))

    @property
    def _trees_hold(self) -> bool:
        """Whether continuations of one beginning have the same states in a tree as alone."""

        def read(base: HuggingFaceBase, rows: Sequence[Tensor]) -> list[Tensor]:
            if not may_branch(base._cache):
                raise ValueError("the cache does not branch")
            return base._in_a_tree(rows)

        return self._alike("tree", read)

    def _alike(
        self, way: str, read: Callable[[HuggingFaceBase, Sequence[Tensor]], list[Tensor]]
    ) -> bool:
        """Return whether a way to read continuations gives the states that each has alone."""
        network = self._trained
        if way in network.tried:
            return network.tried[way]
        ids = network.probe_ids
        alone = [ids[-1:], ids[:1]]  # some models read rows of a single token otherwise
        # what begins alike is in a tree once
        alike_at_first = [ids[-2:], torch.cat([ids[-2:-1], ids[:2]]), ids[:1]]
        tried = (alike_at_first,) if way == "tree" else (alike_at_first, alone)
        with turn(network.model):
            exact = is_exact(network.model, ids)

        def alike() -> bool:
            base = HuggingFaceBase(network)
            base.read(ids[:-2])
            expected = [GradientBase.continuations(base, rows) for rows in tried]
            try:
                states = [read(base, rows) for rows in tried]
            except (RuntimeError, ValueError, IndexError, TypeError):  # it reads them one at a time
                return False
            pairs = zip(chain(*states), chain(*expected), strict=True)
            return all(
                one.shape == other.shape and agree(one, other, exact) for one, other in pairs
            )

        network.tried[way] = holds(alike, exact)
        return network.tried[way]

    def _begin(self) -> None:
        device = self._trained.head.weight.device
        self._window = torch.zeros(self._streams, 0, dtype=torch.int64, device=device)
        self._cache = None

    def _carry(self, carried: State) -> None:
        """Load the tensors of a cache, by name, in place of those after the same tokens."""
        self._cache = replace_tensors(self._cache, lambda name, _: carried[name].clone())

    @property
    def _anew(self) -> bool:
        """Whether the window is read again each time: no state can be carried, or no gradient
        passes it.
        """
        return self._trained.steps == "none" or (self.tracked and not self._trained.differentiable)

    @property
    def _recurrent(self) -> bool:
        """Whether a state is carried from the beginning of the stream, and no window kept."""
        return self._trained.recurrent and not self._anew

    def _advance(self, ids: Tensor) -> Tensor:
        """Return states (B, N, D) after tokens (B, N) that fit into the window, or begin the next
        one.
        """
        trained = self._trained
        window = self._window
        ids = ids.to(window.device)
        if window.shape[1] == trained.context:
            window = trained.with_bos(window[:, trained.stride :])
            self._cache = None
        fed = ids if self._cache is not None else torch.cat([window, ids], 1)
        if not self._anew and trained.steps == "one" and self._cache is not None:
            states = torch.cat([self._forward(token) for token in torch.split(fed, 1, 1)], 1)
        else:
            states = self._forward(fed)
        if not self._recurrent:
            self._window = torch.cat([window, ids], 1)
        return states[:, -ids.shape[1] :]

    def _forward(self, ids: Tensor) -> Tensor:
        """Return states (B, N, D) after tokens (B, N) that follow the cache, and extend the
        cache.
        """
        hidden, self._cache = self._trained.states(
            ids, self._cache, self._own, carry=not self._anew
        )
        if self._anew:
            self._cache = None
        elif self.tracked and self._cache is not None:
            self._cache = replace_tensors(self._cache, lambda _, tensor: tensor.detach())
        return hidden


def _parts(rows: Sequence[Tensor], most: int) -> Iterator[Sequence[Tensor]]:
    """Yield runs of rows (N_b,) that hold at most so many tokens, or a single row."""
    begin = size = 0
    for at, row in enumerate(rows):
        if size and size + len(row) > most:
            yield rows[begin:at]
            begin, size = at, 0
        size += len(row)
    yield rows[begin:]
