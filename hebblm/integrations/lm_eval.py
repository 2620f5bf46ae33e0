"""Adapted models in lm-evaluation-harness: ``python -m hebblm.integrations.lm_eval --model hebblm ...``.

Importing this module registers the model; the command is that of ``lm_eval``, with it registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, TemplateLM
from lm_eval.api.registry import register_model
from torch import Tensor

from hebblm.errors import UserError
from hebblm.language_model import load
from hebblm.progress import track

GENERATED = 256  # tokens of an answer, where the task does not say


@register_model("hebblm")
class AdaptedLM(TemplateLM):  # type: ignore[misc]
    """A reader as the harness sees a model; requests are answered one at a time, in order.

    Args:
        pretrained: a shipped model's name, a folder, or a hub id, as :func:`hebblm.load` takes it.
        method: as :data:`hebblm.METHODS` has it; ``lstm`` is the model unadapted.
        memory: folder of a memory or of a saved reader; none starts with an empty one.
        learn: whether documents of ``loglikelihood_rolling`` are learned from, ``update_every`` tokens at a time and
            each of these after it was scored.
        k: neighbours a query.
        update_every: most tokens between two updates, and of a document that are scored at a time.
        device: auto, cpu or cuda; the harness's None means auto.
        dtype: of the weights.
        batch_size: taken and not used, as the harness always names one.
        max_batch_size: likewise.
    """

    def __init__(
        self,
        pretrained: str,
        method: str = "mixture+hebb",
        memory: str | None = None,
        learn: bool = False,
        k: int = 200,
        update_every: int = 10,
        device: str | None = None,
        dtype: str = "auto",
        batch_size: int | str | None = 1,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        lm = load(pretrained, device=device or "auto", dtype=dtype)
        self.learn = learn
        self.reader = lm.reader(method, memory=memory, k=k, update_every=update_every)
        self.vocabulary = self.reader.vocabulary

    @property
    def eot_token_id(self) -> int:
        """Id that ends a text."""
        return self.vocabulary.start if self.vocabulary.end is None else self.vocabulary.end

    @property
    def prefix_token_id(self) -> int:
        """Id that stands before a text."""
        return self.vocabulary.start

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Take the place where the harness keeps scores.

        Raises:
            UserError: documents are learned from, which one whose score is kept would not be.
        """
        if self.learn:
            raise UserError("learn=True: a document whose score is kept is not learned from; leave --use_cache out")
        super().set_cache_hook(cache_hook)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return the ids of a string, without special ones around it."""
        return list(self.vocabulary.encode(string, include=False).ids)

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability of whole documents, nats; they are learned from as they are read if asked for."""
        found = []
        for request in track(requests, "documents", len(requests), "documents"):
            self.reader.begin()
            found.append(-float(self.reader.read(request.args[0], learn=self.learn).nll.double().sum()))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return what follows each prompt, up to the strings that end an answer; learns nothing."""
        found = []
        for request in track(requests, "answers", len(requests), "answers"):
            prompt, options = request.args
            until = options.get("until") or []
            temperature = options.get("temperature", 1.0) if options.get("do_sample") else 0.0
            self.reader.begin()
            found.append(
                self.reader.generate(
                    prompt,
                    max_new_tokens=options.get("max_gen_toks", GENERATED),
                    temperature=temperature,
                    until=[until] if isinstance(until, str) else until,
                )
            )
            self.cache_hook.add_partial("generate_until", request.args, found[-1])
        return found

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation, nats, and whether all its tokens are the most probable."""
        found = []
        for words, context, continuation in track(requests, "continuations", len(requests), "continuations"):
            ids = torch.tensor([*context, *continuation])
            scores = self.reader.log_probs(ids[:-1], last=len(continuation)).cpu()  # (N, V)
            found.append(scored(scores, ids[len(context) :]))
            self.cache_hook.add_partial("loglikelihood", words, found[-1])
        return found


def scored(log_probs: Tensor, targets: Tensor) -> tuple[float, bool]:
    """Return the sum of the targets' log-probabilities, nats, and whether each target is the most probable.

    Args:
        log_probs: (N, V).
        targets: (N,).
    """
    total = log_probs.double().gather(1, targets[:, None]).sum()
    return float(total), bool((log_probs.argmax(1) == targets).all())


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
