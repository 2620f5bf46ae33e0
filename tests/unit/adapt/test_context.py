from __future__ import annotations

import pytest
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.errors import MOST, UserError
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from ...support import toy


def context(window: int = 3, **changes: object) -> Context:
    head = OutputHead(toy.randn(0, 5, toy.DIM), None)
    arguments = {"k": 4, "train_counts": torch.tensor([9, 0, 3, 1, 0]), "window": window, **changes}
    return Context(head, FlatMemory(toy.DIM), **arguments)  # type: ignore[arg-type]


def test_observing_counts_remembers_and_keeps_the_latest_pairs() -> None:
    shared, hidden = context(), toy.randn(1, 5, toy.DIM)
    toy.observe(shared, hidden[:2], torch.tensor([1, 4]))
    toy.observe(shared, hidden[2:], torch.tensor([1, 0, 2]))
    assert shared.observed.tolist() == [1, 2, 1, 0, 1]
    assert len(shared.memory) == 5
    keys, labels = shared.recent.latest(9)
    assert torch.equal(keys, hidden[2:])
    assert labels.tolist() == [1, 0, 2]


def test_a_memory_that_is_not_written_to_leaves_counts_and_window_alive() -> None:
    shared = context()
    toy.observe(shared, toy.randn(1, 2, toy.DIM), torch.tensor([1, 1]), write=False)
    assert len(shared.memory) == 0
    assert shared.observed.tolist() == [0, 2, 0, 0, 0]
    assert len(shared.recent.latest(3)[1]) == 2


def test_a_window_takes_no_more_memory_than_what_it_holds() -> None:
    shared, hidden = context(window=MOST), toy.randn(1, 5, toy.DIM)
    for row in hidden:
        toy.observe(shared, row[None], torch.tensor([1]))
    assert torch.equal(shared.recent.latest(MOST)[0], hidden)
    again = context(window=MOST)
    again.recent.load_state_dict(shared.recent.state_dict())
    assert torch.equal(again.recent.latest(MOST)[0], hidden)


def test_without_a_window_nothing_recent_is_kept() -> None:
    shared = context(window=0)
    toy.observe(shared, toy.randn(1, 2, toy.DIM), torch.tensor([1, 1]))
    assert [len(part) for part in shared.recent.latest(3)] == [0, 0]


def test_a_buffer_filled_anew_and_a_batch_observed_are_seen_as_they_are() -> None:
    shared, hidden = context(), toy.randn(1, 2, toy.DIM)
    first = EvalBatch(hidden, shared).logits
    hidden.copy_(toy.randn(2, 2, toy.DIM))
    assert not torch.equal(EvalBatch(hidden, shared).logits, first)
    toy.observe(shared, hidden, torch.tensor([0, 1]))
    assert EvalBatch(hidden, shared).neighbors.mask.any()


def test_a_shared_quantity_is_computed_once_a_key() -> None:
    batch, calls = EvalBatch(toy.randn(1, 2, toy.DIM), context()), []
    results = [batch.shared(key, lambda: calls.append(1) or len(calls)) for key in ("a", "a", "b")]
    assert results == [1, 1, 2]


def test_a_head_that_grew_makes_room_for_counts_of_new_classes() -> None:
    shared = context()
    toy.observe(shared, toy.randn(1, 1, toy.DIM), torch.tensor([4]))
    shared.set_head(OutputHead(toy.randn(2, 7, toy.DIM), None))
    assert shared.train_counts.tolist() == [9, 0, 3, 1, 0, 0, 0]
    assert shared.observed.tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert shared.new_classes is not None
    assert shared.new_classes.tolist() == [False] * 5 + [True] * 2
    shared.set_head(OutputHead(toy.randn(2, 8, toy.DIM), None))
    assert shared.new_classes.tolist() == [False] * 5 + [True] * 3


def test_no_neighbour_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="k = 0 is too few neighbours; choose at least 1"):
        context(k=0)


def test_a_fixed_head_remembers_the_normalizers_of_what_it_observes() -> None:
    shared, hidden = context(fixed=True), toy.randn(1, 3, toy.DIM)
    _ = EvalBatch(hidden, shared).log_probs
    toy.observe(shared, hidden, torch.tensor([1, 4, 2]))
    toy.observe(shared, toy.randn(2, 2, toy.DIM), torch.tensor([0, 0]))
    near = EvalBatch(toy.randn(3, 2, toy.DIM), shared).neighbors
    assert near.log_normalizers is not None
    torch.testing.assert_close(near.log_normalizers, shared.head.logits(near.keys).logsumexp(2))
    with pytest.raises(ValueError, match="2 more rows"):
        shared.set_head(OutputHead(toy.randn(2, 7, toy.DIM), None))


def test_half_precision_keys_are_remembered_with_normalizers_of_their_own() -> None:
    shared = context(fixed=True)
    shared.memory = FlatMemory(toy.DIM, dtype=torch.float16)
    toy.observe(shared, 30 * toy.randn(1, 6, toy.DIM), torch.zeros(6, dtype=torch.int64))
    near = EvalBatch(toy.randn(3, 2, toy.DIM), shared).neighbors
    torch.testing.assert_close(
        near.log_normalizers, shared.head.logits(near.keys).logsumexp(2), rtol=1e-6, atol=1e-5
    )


def test_a_head_that_moves_reads_no_normalizers() -> None:
    shared = context()
    shared.memory.add(toy.randn(1, 3, toy.DIM), torch.tensor([1, 4, 2]), torch.ones(3))
    assert EvalBatch(toy.randn(3, 2, toy.DIM), shared).neighbors.log_normalizers is None
    toy.observe(shared, toy.randn(2, 2, toy.DIM), torch.tensor([0, 0]))
    assert shared.memory.search(toy.randn(3, 2, toy.DIM), 4).log_normalizers is None


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_of_a_block_find_each_other_with_normalizers_if_the_head_is_fixed(fixed: bool) -> None:
    shared, hidden = context(fixed=fixed), toy.randn(1, 6, toy.DIM)
    toy.observe(shared, toy.randn(2, 3, toy.DIM), torch.tensor([0, 1, 2]))
    near = EvalBatch(hidden, shared, Block.of(torch.tensor([1, 4, 2, 0, 0, 3]), 1, True)).neighbors
    assert (near.values == 4).any()
    if not fixed:
        assert near.log_normalizers is None
        return
    assert near.log_normalizers is not None
    expected = shared.head.logits(near.keys).logsumexp(2)
    torch.testing.assert_close(near.log_normalizers[near.mask], expected[near.mask])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_head_of_half_precision_is_refused(dtype: torch.dtype) -> None:
    head = OutputHead(torch.zeros(3, toy.DIM, dtype=dtype), None)
    with pytest.raises(UserError, match="give its weights as float32"):
        Context(head, FlatMemory(toy.DIM), k=1, train_counts=torch.zeros(3, dtype=torch.int64))
