"""MbPA and Hebb over a network with one hidden layer: each query's own copy is adapted to its
stored neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt.functional import (
    HebbianTerm,
    hebb_combine,
    hebb_weights,
    hebbian_term,
    kernel_weight,
)
from hebblm.adapt.solvers.problem import loss_increased
from hebblm.memory import FlatMemory
from hebblm.memory.nearest import Ranked
from hebblm.types import Neighbors
from hebblm.vision.mlp import MLP
from hebblm.vision.settings import Rate

CPU_CHUNK_BYTES = 16 << 20  # a few queries, near the processor's caches
CUDA_CHUNK_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class NetworkProblem:
    """Problem of each query: maximise ``sum_k w_k log P(y_k | x_k)`` over its own copy of all
    parameters (Eq. 5).

    What the base network makes of the neighbours is given, because an entry of the memory goes
    through it only once.
    """

    model: MLP  # the base network, which stays as it is
    points: Tensor  # (n, K + 1, D) pixels of the neighbours and, as a last row, of the query
    inputs: Tensor  # (n, K + 1, H) W x + b of the same
    logits: Tensor  # (n, C, K + 1) V relu(W x + b) + v of the same
    labels: Tensor  # (n, K) int64
    weights: Tensor  # (n, K) w_k = c_k / |N|; zero takes an entry out of every sum

    def gram(self) -> Tensor:
        """Return ``G = X' X^T + 1`` (n, K + 1, K), X the K neighbours and X' the query as well."""
        gram = torch.bmm(self.points, self.points[:, :-1].transpose(1, 2))
        gram += 1
        return gram


@torch.no_grad()
def descend(
    problem: NetworkProblem, gram: Tensor, rates: Tensor, *, steps: int
) -> tuple[Tensor, Tensor]:
    """Follow S steps of plain descent on both layers exactly; the first layer's change is never
    formed.

    A step changes W by ``-D^T X``, in the span of the neighbours' pixels, so that it is enough to
    follow what the hidden units receive, Z, for the K neighbours and, as a last row, for the query.
    With ``a = lr w``, ``X'`` the K neighbours and the query, and ``G = X' X^T + 1``::

        Z = X' W^T + b, then in each step, R and D for the K neighbours alone:
        H = relu(Z)    R = (softmax(H V^T + v) - Y) a    D = (R V) [Z > 0]
        V -= R^T H     v -= sum R     Z -= G D

    Returned are the change of the logits (n, C), and whether the neighbours' loss rose (n,) bool.
    """
    head = problem.model.head
    labels = problem.labels
    weights = problem.weights
    assert head.bias is not None  # an MLP always has one
    n, count = labels.shape
    scale = (rates.unsqueeze(1) * weights).unsqueeze(1)  # a (n, 1, K)
    chosen = labels.unsqueeze(1)
    minus = weights.new_full((n, 1, count), -1)
    hidden = problem.inputs.relu()  # H (n, K + 1, H)
    near = hidden[:, :count]
    across = hidden.transpose(1, 2)

    def residual(logits: Tensor) -> Tensor:
        # The few classes come first: along a last dimension this short, a softmax is several times
        # as slow.
        residuals = logits[:, :, :count].softmax(1).scatter_add_(1, chosen, minus)
        return residuals.mul_(scale)  # R^T (n, C, K)

    # The first step starts from the V that all queries share, and from a problem that has to stay
    # as it is.
    now = residual(problem.logits)
    # D (n, K, H)
    change = now.transpose(1, 2).reshape(n * count, -1).mm(head.weight).view(n, count, -1)
    change = _masked_gradient(change, near)
    output = torch.baddbmm(head.weight.unsqueeze(0), now, near, alpha=-1)  # V (n, C, H)
    offset = head.bias.unsqueeze(1) - now.sum(2, keepdim=True)  # v (n, C, 1)
    inputs = torch.baddbmm(problem.inputs, gram, change, alpha=-1)  # Z (n, K + 1, H)
    torch.clamp(inputs, min=0, out=hidden)
    logits = torch.baddbmm(offset, output, across)  # (n, C, K + 1)
    for _ in range(steps - 1):
        now = residual(logits)
        torch.bmm(now.transpose(1, 2), output, out=change)
        change = _masked_gradient(change, near)
        output.baddbmm_(now, near, alpha=-1)
        offset -= now.sum(2, keepdim=True)
        inputs.baddbmm_(gram, change, alpha=-1)
        torch.clamp(inputs, min=0, out=hidden)
        torch.baddbmm(offset, output, across, out=logits)
    before = _loss(problem.logits[:, :, :count], labels, weights)
    after = _loss(logits[:, :, :count], labels, weights)
    return logits[:, :, count] - problem.logits[:, :, count], loss_increased(before, after)


def _loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return ``-sum_k w_k log P(y_k | x_k)`` (n,) in nats for logits (n, C, K)."""
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")  # (n, K)
    return torch.where(weights > 0, weights * losses, 0).sum(1)


def _masked_gradient(change: Tensor, hidden: Tensor) -> Tensor:
    """Return ``D [H > 0]`` in the place of D (n, K, H), in one pass: what torch does backwards
    through a ReLU.
    """
    gradient: Tensor = torch.ops.aten.threshold_backward.grad_input(
        change, hidden, 0, grad_input=change
    )
    return gradient


def adapt(problem: NetworkProblem, *, lr: float, rate: Rate, steps: int) -> tuple[Tensor, Tensor]:
    """Run the descent at each query's own rate.

    ``lr`` is lambda itself where the rate is absolute, rho of ``rho / lambda_max`` where it is
    relative (:func:`curvature`). Returned are the change of the logits (n, C), zero where it was
    not finite, and whether the neighbours' loss rose (n,) bool.
    """
    if lr == 0 or steps == 0:
        nothing = torch.zeros_like(problem.logits[:, :, -1])
        return nothing, torch.zeros_like(nothing[:, 0], dtype=torch.bool)
    gram = problem.gram()
    rates = torch.full_like(problem.weights[:, 0], lr)
    if rate == "relative":
        unit = curvature(
            problem.inputs[:, :-1], gram[:, :-1], problem.weights, problem.model.head.weight
        )
        rates = torch.where(unit > 0, rates / unit, 0)
    delta, rises = descend(problem, gram, rates, steps=steps)
    return torch.where(delta.isfinite().all(1, keepdim=True), delta, 0), rises


@torch.no_grad()
def curvature(inputs: Tensor, gram: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """Estimate ``lambda_max`` of the neighbours' weighted tangent kernel, without forming it and in
    one pass.

    With ``h_k = relu(W x_k + b)``, ``m_ku`` whether unit u is active for k, ``v_u`` a column of V
    less its mean over the classes (which no softmax sees), and ``G = X X^T + 1``, the logits of
    neighbours k and j move together by::

        N_kj = (h_k.h_j + 1) I + G_kj sum_u m_ku m_ju v_u v_u^T     (C, C)

    The unit is ``lambda_max(A^1/2 N A^1/2)``, A = diag(w_k). Neighbours are alike and nearly move
    as one: along ``b = G w / sqrt(w^T G w)``, for which ``b b^T <= G``. Returned is the Rayleigh
    quotient of ``sqrt(w_k) b_k f`` at the best f of the C classes, with ``b b^T`` for G::

        (|sum_k w_k b_k h_k|^2 + (sum_k w_k b_k)^2 + lambda_max(sum_u t_u^2 v_u v_u^T)) / sum_k w_k
        b_k^2 t_u = sum_k w_k b_k^2 m_ku

    It is never above the true value, and was 0.90 to 1.00 of it on 80 queries of permuted MNIST (4
    and 20 tasks).

    What follows for descent at ``rho / lambda_max``: cross-entropy's Hessian in the logits is at
    most 1/2, so that the Gauss-Newton part of the loss's Hessian is at most ``lambda_max / 2``
    where it stands, and a step of rho <= 4 lowers its quadratic model (rho <= 3.6 at 0.90 of the
    true value). Nothing is guaranteed for what is left out: units that switch on or off, and the
    product of both layers' changes. A rise of the loss is looked for after the descent.

    ``inputs`` (n, K, H) are W x + b of the neighbours, ``gram`` (n, K, K) is G, ``weights`` (n, K)
    are w >= 0 and ``output`` (C, H) is V. The estimate (n,) is 0 where no neighbour weighs
    anything.
    """
    tiny = torch.finfo(weights.dtype).tiny
    shared = torch.bmm(weights.unsqueeze(1), gram).squeeze(1)  # G w (n, K)
    along = shared * (shared * weights).sum(1, keepdim=True).clamp_min(tiny).rsqrt()  # b (n, K)
    first = weights * along  # w b (n, K)
    second = first * along  # w b^2 (n, K)
    hidden = inputs.relu()  # (n, K, H)
    mean = torch.bmm(first.unsqueeze(1), hidden).squeeze(1)  # (n, H)
    active = torch.bmm(second.unsqueeze(1), hidden.sign_()).transpose(1, 2)  # t (n, H, 1)
    by_unit = (output - output.mean(0)).T * active  # t_u v_u (n, H, C)
    of_classes = torch.linalg.eigvalsh(torch.bmm(by_unit.transpose(1, 2), by_unit))[:, -1]  # (n,)
    quotient: Tensor = mean.square().sum(1) + first.sum(1).square() + of_classes
    return quotient / second.sum(1).clamp_min(tiny)


@dataclass(frozen=True, slots=True)
class Adapted:
    """Logits that a grid over beta and eta shares: everything but these two."""

    base_logits: Tensor  # (N, C) of the base network
    delta: Tensor  # (N, C) what MbPA adds
    term: HebbianTerm  # on the output layer
    loss_increased: (
        Tensor  # (N,) bool, queries whose neighbours' loss was higher after the steps than before
    )

    def mbpa(self) -> Tensor:
        return self.base_logits + self.delta

    def hebb(self, counts: Tensor, *, beta: float, eta: float) -> Tensor:
        """Hebb's logits (N, C) where n_i = ``counts`` (C,) examples of class i were observed."""
        return hebb_combine(
            self.base_logits, self.delta, self.term, hebb_weights(counts, beta), eta=eta
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as one network sees it."""

    memory: FlatMemory  # pixels and labels, at least one; not added to as long as this is in use
    model: MLP
    inputs: Tensor  # (M, H) what the hidden units receive from each entry
    logits: Tensor  # (M, C)

    @classmethod
    @torch.no_grad()
    def under(cls, memory: FlatMemory, model: MLP) -> Stored:
        """The memory under a network; all queries share this pass over the entries."""
        inputs = model.inputs(memory.entries().keys)
        return cls(memory, model, inputs, model.head.logits(inputs.relu()))

    @torch.no_grad()
    def problem(self, queries: Tensor, ranked: Ranked, *, eps: float) -> NetworkProblem:
        """The adaptation of queries (n, D) to their neighbours (n, K) in the memory."""
        entries = self.memory.entries()
        mask = ranked.ids >= 0
        ids = ranked.ids.clamp_min(0)
        weights = kernel_weight(ranked.distances, mask, eps=eps) / mask.sum(1, keepdim=True)
        rows = torch.nn.functional.pad(ids, (0, 1))  # (n, K + 1), the last for the query's own
        points, inputs, logits = entries.keys[rows], self.inputs[rows], self.logits[rows]
        points[:, -1] = queries
        inputs[:, -1] = self.model.inputs(queries)
        logits[:, -1] = self.model.head.logits(inputs[:, -1].relu())
        by_class = logits.transpose(1, 2).contiguous()
        return NetworkProblem(self.model, points, inputs, by_class, entries.values[ids], weights)


@torch.no_grad()
def adapt_mlp(
    stored: Stored, queries: Tensor, *, k: int, lr: float, rate: Rate, steps: int, eps: float
) -> Adapted:
    """Adapt the network to the neighbours of every query.

    Keys are pixels and the whole network is the output network. The Hebbian term changes the output
    layer: its h_k are hidden activations under the base weights, its c_k those of the pixels (Eq.
    4), with ``eps``. For ``lr`` and ``rate`` see :func:`adapt`.
    """
    parts = []
    for chunk in torch.split(queries, _chunk(stored.model, k, queries.device)):
        ranked = stored.memory.nearest(chunk, k)
        problem = stored.problem(chunk, ranked, eps=eps)
        delta, loss_increased = adapt(problem, lr=lr, rate=rate, steps=steps)
        hidden = problem.inputs.relu()  # (n, K + 1, H)
        neighbors = Neighbors(hidden[:, :-1], problem.labels, ranked.distances, ranked.ids >= 0)
        term = hebbian_term(neighbors, hidden[:, -1], eps=eps)
        parts.append(Adapted(problem.logits[:, :, -1].clone(), delta, term, loss_increased))
    return Adapted(
        torch.cat([part.base_logits for part in parts]),
        torch.cat([part.delta for part in parts]),
        HebbianTerm(*map(torch.cat, zip(*(part.term for part in parts), strict=True))),
        torch.cat([part.loss_increased for part in parts]),
    )


def _chunk(model: MLP, k: int, device: torch.device) -> int:
    hidden, width = model.weight.shape
    floats = k * (5 * hidden + 2 * width + k) + 2 * len(model.head.weight) * hidden
    budget = CUDA_CHUNK_BYTES if device.type == "cuda" else CPU_CHUNK_BYTES
    return max(1, budget // (model.weight.element_size() * floats))
