"""The plain forms that the fast ones are measured and tested against: slow, obvious, one token at a
time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from hebblm.types import Neighbors, OutputHead
from hebblm.vision.mlp import MLP

SEARCH_BYTES = 256 << 20  # distances held at a time by the exact search


def entries_of(neighbors: Neighbors, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the real entries of a query: keys (k, D), labels (k,), squared distances (k,)."""
    mask = neighbors.mask[row]
    return neighbors.keys[row][mask], neighbors.values[row][mask], neighbors.distances[row][mask]


def adapted_head(  # noqa: PLR0913 - the parameters of hebblm.adapt.functional
    neighbors: Neighbors,
    row: int,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eps: float,
    optimizer: str = "sgd",
    l2_to_base: float = 0.0,
    relative: bool = False,
) -> OutputHead:
    """Return a copy of the head, fitted to one query's neighbours by automatic differentiation (Eq.
    5).

    The optimizer is ``sgd`` or ``rmsprop``; ``l2_to_base`` is the rate of the pull back to the base
    head. ``relative`` takes ``lr`` and ``l2_to_base`` in units of 1 over the largest eigenvalue of
    ``A^1/2 (H H^T + 1) A^1/2``.
    """
    keys, labels, distances = entries_of(neighbors, row)
    base = [head.weight] if head.bias is None else [head.weight, head.bias]
    if len(labels) == 0:
        return head
    copies = [tensor.clone().requires_grad_() for tensor in base]
    kernel_weight = 1 / (eps + distances)
    predictors = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}
    taken = lr * l2_to_base
    if relative:
        root = (kernel_weight / len(labels)).sqrt()
        gram = keys @ keys.t() + (0.0 if head.bias is None else 1.0)
        lr = lr / float(torch.linalg.eigvalsh(root[:, None] * gram * root)[-1])
    predictor = predictors[optimizer](copies, lr=lr)
    for _ in range(steps):
        predictor.zero_grad()
        logits = linear(keys, *copies)
        losses = cross_entropy(logits, labels, reduction="none")
        torch.autograd.backward((kernel_weight * losses).sum() / len(labels))
        # Without a pull nobody would form these differences, and they would flatter whatever is
        # compared.
        drift = (
            [copy.detach() - start for copy, start in zip(copies, base, strict=True)]
            if l2_to_base
            else None
        )
        predictor.step()
        if drift is not None:
            with torch.no_grad():
                for copy, moved in zip(copies, drift, strict=True):
                    copy -= taken * moved
    weight, *bias = (copy.detach() for copy in copies)
    return OutputHead(weight, bias[0] if bias else None)


def mbpa_logits(hidden: Tensor, neighbors: Neighbors, head: OutputHead, **descent: Any) -> Tensor:
    """Return (N, V) logits of MbPA for queries (N, D), each by its own copy of the head (Eq. 5)."""
    heads = (adapted_head(neighbors, row, head, **descent) for row in range(len(hidden)))
    return torch.stack([own.logits(query) for own, query in zip(heads, hidden, strict=True)])


def hebbian_change(
    neighbors: Neighbors, row: int, head: OutputHead, *, eps: float, hebbian_classes: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return D_i of Eq. 4 for one query: for the weights (V, D), for the biases (V,), and which
    classes have one (V,).

    ``hebbian_classes`` (V,) marks the labels that make up N^new; None takes all.
    """
    keys, labels, distances = entries_of(neighbors, row)
    kernel_weight = 1 / (eps + distances)
    weight, bias = torch.zeros_like(head.weight), torch.zeros_like(head.weight[:, 0])
    present = torch.zeros_like(bias, dtype=torch.bool)
    for label in torch.unique(labels):
        if hebbian_classes is not None and not hebbian_classes[label]:
            continue
        members = labels == label
        weight[label] = (kernel_weight[members, None] * keys[members]).mean(0)
        bias[label] = kernel_weight[members].mean()
        present[label] = True
    return weight, bias, present


def hebb_logits(  # noqa: PLR0913 - the parameters of hebblm.adapt.functional
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    eta: float,
    beta: float,
    counts: Tensor,
    eps: float,
    hebbian_classes: Tensor | None = None,
    gate: str = "gated",
    constant: float | None = None,
    mbpa: bool = True,
    **descent: Any,
) -> Tensor:
    """Return (N, V) logits of Hebb for queries (N, D), forming both changes of the head (Eq. 4 and
    7).

    ``beta`` is the decay of the weight E_i with the count n_i; ``constant`` replaces E_i. The
    ``gated`` form takes E_i as 0 where D_i is empty, ``literal`` does not. Without ``mbpa``, ``eta
    D_i`` alone is added.
    """
    seen = counts > 0
    powers = beta ** counts.to(torch.float64)
    shares = torch.where(seen, (1 - beta) / torch.where(seen, 1 - powers, 1), 0.0)  # E (V,)
    if constant is not None:
        shares = torch.full_like(shares, constant)
    rows = []
    for row, query in enumerate(hidden):
        change_w, change_b, present = hebbian_change(
            neighbors, row, head, eps=eps, hebbian_classes=hebbian_classes
        )
        e = (torch.where(present, shares, 0.0) if gate == "gated" else shares).to(query.dtype)
        keep, add = (1 - e, eta * e) if mbpa else (torch.zeros_like(e), torch.full_like(e, eta))
        own = adapted_head(neighbors, row, head, eps=eps, **descent)
        weight = head.weight + keep[:, None] * (own.weight - head.weight) + add[:, None] * change_w
        bias = None
        if head.bias is not None and own.bias is not None:
            bias = head.bias + keep * (own.bias - head.bias) + add * change_b
        rows.append(OutputHead(weight, bias).logits(query))
    return torch.stack(rows)


def one_hot_history(values: Tensor, classes: int) -> Tensor:
    """Return the words (T,) as the (T, V) float32 matrix that the classic pointer cache keeps."""
    history = torch.zeros(len(values), classes, device=values.device)
    return history.scatter_(1, values[:, None], 1.0)


def pointer_cache_losses(
    log_probs: Tensor,
    hidden: Tensor,
    keys: Tensor,
    history: Tensor,
    targets: Tensor,
    *,
    window: int,
    theta: float,
    weight: float,
) -> Tensor:
    """Return the losses (N,) of the continuous cache by its classic loop: one-hot window times
    probabilities.

    ``P(y) = (1 - w) p(y) + w sum_k softmax(theta h_k . h)_k 1[y_k = y]`` over the ``window`` tokens
    before each (Grave et al. 2017). Query i of ``hidden`` (N, D) comes after the first W + i tokens
    of the history, whose hidden states are ``keys`` (W + N, D) and whose words are ``history`` (W +
    N, V), one-hot; ``log_probs`` (N, V) come from the base.
    """
    losses = []
    for at, query in enumerate(hidden):
        words, states = history[at : at + window], keys[at : at + window]  # (W, V), (W, D)
        attention = (theta * (states @ query)).softmax(0)  # (W,)
        pointed = (attention[:, None] * words).sum(0)  # (V,)
        mixed = (1 - weight) * log_probs[at].exp() + weight * pointed
        losses.append(-mixed[targets[at]].log())
    return torch.stack(losses)


def exact_search(queries: Tensor, keys: Tensor, norms: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k nearest keys of each query, by comparing with all: squared distances (N, K), and
    keys (N, K, D).
    """
    step = max(1, SEARCH_BYTES // (len(keys) * keys.element_size()))
    distances, found = [], []
    for part in torch.split(queries, step):
        near = torch.addmm(norms, part, keys.t(), alpha=-2).topk(k, largest=False)  # (n, K)
        distances.append(near.values + part.square().sum(1, keepdim=True))
        found.append(keys[near.indices])
    return torch.cat(distances), torch.cat(found)


def network_logits(
    model: MLP,
    query: Tensor,
    keys: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    lr: float,
    steps: int,
) -> Tensor:
    """Fit a copy of all four parameters to a query's neighbours and return its logits (C,) (Eq. 5).

    The query (D,) and ``keys`` (K, D) are pixels; ``weights`` (K,) are ``c_k / |N|``.
    """
    copies = tuple(parameter.clone().requires_grad_() for parameter in model.parameters())
    own = MLP.of(copies)
    optimizer = torch.optim.SGD(copies, lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        losses = cross_entropy(own.logits(keys), labels, reduction="none")
        torch.autograd.backward((weights * losses).sum())
        optimizer.step()
    return own.logits(query).detach()
