"""Whole distributions of the next token: after given states, or within a text of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import whole_number
from hebblm.memory.ngram_rows import contexts_of
from hebblm.reader.inputs import known_ids
from hebblm.reader.own_text import OwnText
from hebblm.reader.session import ReaderSession


@torch.no_grad()
def predict(
    session: ReaderSession, hidden: Tensor, texts: Sequence[Sequence[int]] | None
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (N, V) in nats after states (N, D), adapted and not; see
    :meth:`hebblm.Reader.predict`.
    """
    weight, model = session.base.head.weight, session.model
    width = weight.shape[1] + (model.key_width if model.keyed else 0)
    if hidden.ndim != 2 or hidden.shape[1] != width:
        raise UserError(
            f"states of shape {tuple(hidden.shape)} are not (N, {width}), as this model gives them"
        )
    if texts is not None and len(texts) != len(hidden):
        raise UserError(
            f"{len(texts)} texts do not fit {len(hidden)} states; give one text for each state"
        )
    contexts, ngrams = None, session.context.ngrams
    if texts and ngrams is not None:
        contexts = np.concatenate(
            [contexts_of(np.array([*text, 0]), len(text), ngrams.order) for text in texts]
        )
    states = hidden.to(weight.device, weight.dtype)
    batch = EvalBatch(states, session.context, contexts=contexts)
    return session.predictor.log_probs(batch), batch.log_probs


@torch.no_grad()
def text_log_probs(session: ReaderSession, ids: Sequence[int] | Tensor, last: int) -> Tensor:
    """Return log-probabilities (N, V) in nats after each of the last N tokens of a text; see
    :meth:`hebblm.Reader.log_probs`.
    """
    token_ids = _known(session, ids)
    if not token_ids or whole_number("last", last, 0) > len(token_ids):
        raise UserError(f"last = {last} must lie between 0 and the number of ids, {len(token_ids)}")
    with _text_of(session, token_ids) as text:
        return text.log_probs(len(token_ids) - last)


@torch.no_grad()
def token_losses(session: ReaderSession, ids: Sequence[int] | Tensor) -> Tensor:
    """Return the loss (N - 1,) in nats of all tokens (N,) of a text but the first; see
    :meth:`hebblm.Reader.token_losses`.
    """
    token_ids = _known(session, ids)
    if not token_ids:
        raise UserError("ids are empty; give at least the one that a text begins with")
    targets = session.last.new_tensor(token_ids[1:])  # (N - 1,)
    losses: list[Tensor] = []
    with _text_of(session, token_ids) as text:
        begin = 0
        for log_probs in text.rows(0):  # (n, V), an interval at a time
            answers = targets[begin : begin + len(log_probs)]
            losses.append(-log_probs[: len(answers)].gather(1, answers[:, None]).squeeze(1))
            begin += len(log_probs)
    return torch.cat(losses).double()


def _known(session: ReaderSession, ids: Sequence[int] | Tensor) -> list[int]:
    return known_ids(
        session.vocabulary,
        ids,
        "row of ids; reader.vocabulary.encode(TEXT, include=False).ids are one",
    )


@contextmanager
def _text_of(session: ReaderSession, ids: list[int]) -> Iterator[OwnText]:
    """Give a text of its own that a session has read."""
    tokens = session.source.readable(session.last.new_tensor(ids))
    with session.at_text_start():
        text = OwnText(session, begins=False)
        text.read(tokens.tolist())
        yield text
