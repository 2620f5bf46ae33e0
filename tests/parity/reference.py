"""The equations as printed, one query at a time on its own copy of the head: slow and plain."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.types import Neighbors, OutputHead


def entries_of(neighbors: Neighbors, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the real entries of one query: keys (k, D), labels (k,), squared distances (k,)."""
    mask = neighbors.mask[row]
    return neighbors.keys[row][mask], neighbors.values[row][mask], neighbors.distances[row][mask]


def adapted_head(
    neighbors: Neighbors,
    row: int,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eps: float,
    optimizer: str = "sgd",
    pull: float = 0.0,
) -> OutputHead:
    """Copy the head and fit it to one query's neighbours by autograd and a torch optimiser."""
    keys, labels, distances = entries_of(neighbors, row)
    base = [head.weight] if head.bias is None else [head.weight, head.bias]
    copies = [tensor.clone().requires_grad_() for tensor in base]
    if len(labels) == 0:
        return head
    closeness = 1 / (eps + distances)
    rule = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}[optimizer](copies, lr=lr)
    for _ in range(steps):
        rule.zero_grad()
        logits = torch.nn.functional.linear(keys, *copies)
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        ((closeness * losses).sum() / len(labels)).backward()
        drift = [copy.detach() - start for copy, start in zip(copies, base, strict=True)]
        rule.step()
        with torch.no_grad():
            for copy, moved in zip(copies, drift, strict=True):
                copy -= lr * pull * moved
    weight, *bias = (copy.detach() for copy in copies)
    return OutputHead(weight, bias[0] if bias else None)


def mbpa_logits(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eps: float,
    optimizer: str = "sgd",
    pull: float = 0.0,
) -> Tensor:
    """Return (N, V) logits of Eq. 5, each query by its own copy of the head."""
    heads = (
        adapted_head(neighbors, row, head, lr=lr, steps=steps, eps=eps, optimizer=optimizer, pull=pull)
        for row in range(len(hidden))
    )
    return torch.stack([own.logits(query) for own, query in zip(heads, hidden, strict=True)])


def hebbian_change(
    neighbors: Neighbors, row: int, head: OutputHead, *, eps: float, hebbian_classes: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Form D_i of Eq. 4: for the weights (V, D), for the bias (V,), and which classes have one (V,) bool."""
    keys, labels, distances = entries_of(neighbors, row)
    weight, bias = torch.zeros_like(head.weight), head.weight.new_zeros(len(head.weight))
    present = torch.zeros(len(head.weight), dtype=torch.bool)
    for i in set(labels.tolist()):
        if hebbian_classes is not None and not hebbian_classes[i]:
            continue
        members = [k for k in range(len(labels)) if labels[k] == i]
        for k in members:
            weight[i] += keys[k] / (eps + distances[k]) / len(members)
            bias[i] += 1 / (eps + distances[k]) / len(members)
        present[i] = True
    return weight, bias, present


def hebb_logits(
    hidden: Tensor,
    neighbors: Neighbors,
    head: OutputHead,
    *,
    lr: float,
    steps: int,
    eta: float,
    beta: float,
    counts: Tensor,
    eps: float,
    hebbian_classes: Tensor | None = None,
    gate: str = "gated",
    optimizer: str = "sgd",
    constant: float | None = None,
    mbpa: bool = True,
) -> Tensor:
    """Return (N, V) logits of Eq. 7, forming both changes of the head."""
    rows = []
    for row, query in enumerate(hidden):
        change_w, change_b, present = hebbian_change(
            neighbors, row, head, eps=eps, hebbian_classes=hebbian_classes
        )
        own = adapted_head(neighbors, row, head, lr=lr, steps=steps, eps=eps, optimizer=optimizer)
        weight = torch.empty_like(head.weight)
        bias = None if head.bias is None else torch.empty_like(head.bias)
        for i in range(len(weight)):
            n = int(counts[i])
            e = constant if constant is not None else (1 - beta) / (1 - beta**n) if n > 0 else 0.0
            if gate == "gated" and not present[i]:
                e = 0.0
            if not mbpa:
                share, scale = 0.0, 1.0
            else:
                share, scale = 1 - e, e
            weight[i] = head.weight[i] + share * (own.weight[i] - head.weight[i]) + scale * eta * change_w[i]
            if bias is not None and head.bias is not None and own.bias is not None:
                bias[i] = head.bias[i] + share * (own.bias[i] - head.bias[i]) + scale * eta * change_b[i]
        rows.append(OutputHead(weight, bias).logits(query))
    return torch.stack(rows)


def label_distribution(weights: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return q (V,) with ``q_i`` the share of the weights (k,) whose label is i."""
    return torch.stack([weights[labels == i].sum() for i in range(classes)]) / weights.sum()


def mixture_probs(
    hidden: Tensor, neighbors: Neighbors, head: OutputHead, *, theta: float, gamma: float, form: str
) -> Tensor:
    """Return (N, V) probabilities of either form of Mixture, exponentials taken as they stand."""
    rows = []
    for row, query in enumerate(hidden):
        keys, labels, _ = entries_of(neighbors, row)
        scores, logits = (theta * (keys @ query)).exp(), head.logits(query)
        if len(labels) == 0:
            rows.append(logits.softmax(0))
        elif form == "linear":
            rows.append(
                (1 - gamma) * logits.softmax(0) + gamma * label_distribution(scores, labels, len(logits))
            )
        else:
            sums = torch.stack([scores[labels == i].sum() for i in range(len(logits))])
            mixed = (1 - gamma) * logits.exp() + gamma * sums
            rows.append(mixed / mixed.sum())
    return torch.stack(rows)


def knn_probs(
    hidden: Tensor, neighbors: Neighbors, head: OutputHead, *, temperature: float, weight: float
) -> Tensor:
    """Return (N, V) probabilities of kNN-LM."""
    rows = []
    for row, query in enumerate(hidden):
        _, labels, distances = entries_of(neighbors, row)
        base = head.logits(query).softmax(0)
        scores = (-distances / temperature).exp()
        q = label_distribution(scores, labels, len(base)) if len(labels) else base
        rows.append((1 - weight) * base + weight * q)
    return torch.stack(rows)
