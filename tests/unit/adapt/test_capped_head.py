"""Under a soft cap, what adapts the head stands beside it, behind the cap: the same as automatic
differentiation.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as nn

from hebblm.adapt import functional as F
from hebblm.adapt.functional import log_normalizers
from hebblm.types import Neighbors, OutputHead

from ...support import toy

CAP = 2.0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("method", ["exact", "fast"])
def test_mbpa_is_descent_on_weights_behind_the_cap(bias: bool, method: str) -> None:
    classes = 40 if method == "exact" else 1500  # the fast form follows all of a small vocabulary
    weight = toy.randn(0, classes, toy.DIM, dtype=torch.float64)
    offset = toy.randn(1, classes, dtype=torch.float64) if bias else None
    head = OutputHead(weight, offset, CAP)
    hidden = toy.randn(2, 3, toy.DIM, dtype=torch.float64)
    keys = hidden[:, None] + 0.3 * toy.randn(3, 3, 5, toy.DIM, dtype=torch.float64)
    values = torch.arange(15).view(3, 5) % 7
    distances, order = (keys - hidden[:, None]).square().sum(2).sort(1)
    keys = keys.gather(1, order[..., None].expand_as(keys))
    near = Neighbors(keys, values.gather(1, order), distances, torch.ones(3, 5, dtype=torch.bool),
                     log_normalizers(keys.flatten(0, 1), head).view(3, 5))  # fmt: skip
    found = F.mbpa_logits(
        hidden, near, head, lr=0.5, steps=3, eps=0.1, lr_units="absolute", solver=method
    )  # type: ignore[arg-type]
    kernel_weight = 1 / (0.1 + near.distances)
    for query in range(3):
        change = torch.zeros_like(weight, requires_grad=True)
        shift = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
        for _ in range(3):
            logits = head.logits(near.keys[query]) + near.keys[query] @ change.t() + shift * bias
            losses = nn.cross_entropy(logits, near.values[query], reduction="none")
            gradients = torch.autograd.grad(
                (kernel_weight[query] * losses).mean(), (change, shift), allow_unused=True
            )
            with torch.no_grad():
                change -= 0.5 * gradients[0]
                if gradients[1] is not None:
                    shift -= 0.5 * gradients[1]
        expected = head.logits(hidden[query]) + hidden[query] @ change.t() + shift * bias
        tolerance = 1e-9 if method == "exact" else 2e-2
        torch.testing.assert_close(found[query], expected.detach(), atol=tolerance, rtol=tolerance)


def test_normalizers_are_those_of_the_capped_logits() -> None:
    head = OutputHead(5 * toy.randn(0, 300, toy.DIM), toy.randn(1, 300), CAP)
    keys = toy.randn(2, 20, toy.DIM)
    logits = head.logits(keys)
    assert float(logits.abs().max()) <= CAP
    torch.testing.assert_close(log_normalizers(keys, head), logits.logsumexp(1))
