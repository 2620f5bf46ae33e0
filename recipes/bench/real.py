"""The cost of reading with a real model: its own plain loop, the base as it is read here, and with
``best``, in processor time inside the evaluation.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import cast

import torch
from torch import Tensor

import hebblm
from hebblm.api.language_model import LanguageModel
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.online.layout import READ_AHEAD
from recipes.bench.configs import RealConfig
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.timing import Turn, stopwatch


def cases(config: RealConfig, rounds: Rounds) -> list[Case]:
    """Return a case a window."""
    return [partial(_window, config, context, rounds) for context in config.contexts]


def _window(config: RealConfig, context: int, rounds: Rounds) -> Row:
    """Read the same pieces by plain code, by the base alone and by the base with ``best``, in
    turn.
    """
    lm = hebblm.load(config.model, context=context, device=str(rounds.device), dtype=config.dtype)
    text = config.text.read_text(encoding="utf-8")
    ids = torch.as_tensor(lm.vocabulary.encode(text, include=False).ids)[: config.tokens]
    spent: dict[str, float] = {}  # by what is computed, in the last round
    seeds = count(time.time_ns() % 2**31)

    def evaluated(*methods: str) -> Turn:
        def turn() -> tuple[float, int]:
            # Another seed each time, which no loss depends on: a run that was killed leaves a
            # checkpoint, and one that went on from it would look fast.
            result = hebblm.evaluate(
                lm, str(config.text), [*methods], max_tokens=len(ids), device=str(rounds.device),
                seed=next(seeds),
            )  # fmt: skip
            assert result.seconds is not None, "a run has just been timed"
            spent.clear()
            spent.update({f"seconds of {part.name}": part.seconds for part in result.seconds.parts})
            spent.update({f"nats of {name}": one.nll for name, one in result.methods.items()})
            return result.seconds.total, len(ids)

        return turn

    timings = rounds.times(
        {
            "plain": stopwatch(partial(_plain, lm, ids), len(ids), rounds.device),
            "base": evaluated("base"),
            "base,best": evaluated("base", "best"),
        }
    )
    values = timings["base,best"].times(timings["base"]).named("times_base")
    values |= spent
    case = {"model": config.model, "text": config.text.name, "window": context, "tokens": len(ids)}
    return Row("real", case, timings, {"base": "plain", "base,best": "base"}, values)


@torch.inference_mode()
def _plain(lm: LanguageModel, ids: Tensor) -> float:
    """Return the loss by transformers alone, nats: as much a pass as an evaluation reads, in the
    same windows.
    """
    network = cast(HuggingFaceModel, lm.model)
    inputs = torch.cat([ids.new_tensor([lm.vocabulary.start]), ids[:-1]])
    total, window, carried, start = 0.0, ids[:0], None, 0
    while start < len(ids):
        if len(window) == network.context:
            window, carried = network.with_bos(window[None, network.stride :])[0], None
        part = inputs[start : start + min(READ_AHEAD, network.context - len(window))]
        fed = part if carried is not None else torch.cat([window, part])
        out = network.model(
            fed[None], past_key_values=carried, use_cache=True, logits_to_keep=len(part)
        )
        targets = ids[start : start + len(part), None]
        total -= float(out.logits[0].float().log_softmax(1).gather(1, targets).sum())
        window, carried, start = torch.cat([window, part]), out.past_key_values, start + len(part)
    return total
