"""Contexts over every memory in which the tests of adapters run all methods."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.online.session import FixedHead, OnlineSession, SessionAdapter
from hebblm.types import OutputHead

from . import toy
from .toy import MEMORIES as MEMORIES
from .toy import MemoryMaker as MemoryMaker
from .toy import every_memory as every_memory


def _rules() -> list[str]:
    """The methods, each rule once: over dynamic evaluation a method has the rule that it has over
    any other base.
    """
    found: dict[str, Predictor] = {}
    for name, method in METHODS.items():
        rule = method.predictor(toy.LEARNED)
        if rule not in found.values():
            found[name] = rule
    return list(found)


RULES = _rules()
WIDE = 576  # classes; the fast form follows 255 of them
every_method = pytest.mark.parametrize("method", RULES)
every_form = pytest.mark.parametrize("form", ["fast", "exact"])
every_method_in_each_of_its_forms = pytest.mark.parametrize(
    ("method", "form"),
    [
        (name, form)
        for name in RULES
        for form in ("fast", "exact")
        if form == "fast" or METHODS[name].predictor(toy.SETTINGS).requirements.descents
    ],
)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])


def configured(form: str) -> MethodSettings:
    return toy.exact(toy.SETTINGS) if form == "exact" else toy.SETTINGS


def filled(
    make: MemoryMaker,
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    entries: int = 40,
    bias: bool = True,
) -> Context:
    """Return a context that observed some pairs, among them new classes and the same state
    twice.
    """
    head = OutputHead(
        toy.randn(seed, WIDE, toy.DIM, dtype=dtype),
        toy.randn(seed + 1, WIDE, dtype=dtype) if bias else None,
    )
    counts = torch.arange(WIDE).flip(0)
    new = torch.arange(WIDE) >= WIDE - 20
    counts = counts.masked_fill(new, 0)
    context = toy.counting(
        Context(head, make(dtype), k=7, train_counts=counts, new_classes=new, window=13)
    )
    if entries:
        hidden = toy.randn(seed + 2, entries, toy.DIM, dtype=dtype)
        hidden[1:2] = hidden[:1]
        labels = torch.randint(0, WIDE, (entries,), generator=torch.Generator().manual_seed(seed))
        labels[::3] = WIDE - 1 - labels[::3] % 5
        toy.observe(context, hidden, labels)
    return context


def queries(seed: int, count: int, context: Context) -> Tensor:
    """Return queries, the first of which lies on an entry of the memory."""
    hidden = toy.randn(seed + 10, count, toy.DIM, dtype=context.head.weight.dtype)
    if len(context.memory):
        hidden[0] = context.memory.search(hidden[:1], 1).keys[0, 0]
    return hidden


def adapter_of(context: Context, rule: Predictor) -> SessionAdapter:
    """Return the adapter of one rule in a context; several may share one: one of them is updated
    for all.
    """
    return OnlineSession(FixedHead(context.head), [context], {"method": rule}).adapter("method")
