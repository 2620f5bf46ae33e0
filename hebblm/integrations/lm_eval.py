"""Adapted models in lm-evaluation-harness: ``python -m hebblm.integrations.lm_eval --model hebblm
...``.

Importing this module registers the model; the command is that of ``lm_eval``, with it registered.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import lm_eval.models  # noqa: F401  (the harness registers its own models only where there are none yet)
import torch
from jinja2 import TemplateError
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, TemplateLM
from lm_eval.api.registry import register_model
from torch import Tensor

from hebblm.api.language_model import LanguageModel, load
from hebblm.errors import UserError
from hebblm.models.huggingface.model import HuggingFaceModel, longest
from hebblm.reader.inputs import Text
from hebblm.runtime.progress import log, track

GENERATED = 256  # tokens of an answer, if the task does not say
HARNESS_DEVICE = "cuda:0"
"""Device of the harness's command if you name none."""
MAX_CONTEXT_TOKENS = 8192
"""Tokens of a window by default; keys and values of more may not fit into memory with the
weights.
"""


@register_model("hebblm")
class AdaptedLM(TemplateLM):  # type: ignore[misc]
    """A reader as a model of the harness; it answers requests one at a time, in order.

    Args:
        pretrained: a shipped model's name, a folder, or a hub id, as for :func:`hebblm.load`.
        method: a name from :data:`hebblm.METHODS`; ``lstm`` is the unadapted model. None takes the
            method of a saved reader in ``memory``, or ``best``.
        memory: folder of a memory or of a saved reader; None starts with an empty memory.
        learn: whether to learn from the documents of ``loglikelihood_rolling``, ``update_every``
            tokens at a time, after they are scored.
        k: neighbours of each query; None takes the saved reader's number, or 200.
        update_every: most tokens between two updates, and most tokens of a document to score at a
            time; None takes the saved reader's number, or 50.
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1. None means auto; so does
            the harness's default cuda:0 on a machine without CUDA, which prints a line.
        dtype: type of the weights.
        batch_size: ignored; the harness always passes it.
        max_batch_size: ignored likewise.
        options: passed to :func:`hebblm.load`, e.g. ``context``, ``stride`` or ``device_map``.
            Without ``context`` the window is as long as the model allows, like that of ``hf``, but
            at most 8,192 tokens.
    """

    def __init__(  # noqa: PLR0913 - the words of --model_args, which the harness passes by name
        self,
        pretrained: str = "",
        method: str | None = None,
        memory: str | None = None,
        learn: bool = False,
        k: int | None = None,
        update_every: int | None = None,
        device: str | None = None,
        dtype: str = "auto",
        batch_size: int | str | None = 1,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not pretrained:
            raise UserError("no model is named; name one with --model_args pretrained=NAME")
        if device == HARNESS_DEVICE and not torch.cuda.is_available():
            log(
                f"torch finds no CUDA device; {pretrained} is read on the CPU instead of the "
                f"harness's {device}"
            )
            device = "cpu"
        lm = load(pretrained, device=device or "auto", dtype=dtype, **options)
        if options.get("context") is None:
            lm = widened(lm, options.get("stride"))
        self.learn = learn
        self.tokenizer: Any = None if lm.pieces is None else lm.pieces.tokenizer
        self.reader = lm.reader(method, memory=memory, k=k, update_every=update_every)
        self.reader.begin()  # each request is a text of its own
        self.vocabulary = self.reader.vocabulary

    @property
    def eot_token_id(self) -> int:
        return self.vocabulary.start if self.vocabulary.end is None else self.vocabulary.end

    @property
    def prefix_token_id(self) -> int:
        return self.vocabulary.start

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Refuse the harness's cache of scores if the reader learns."""
        if self.learn:
            raise UserError(
                "learn=True cannot learn from documents with cached scores; leave --use_cache out"
            )
        super().set_cache_hook(cache_hook)

    @property
    def tokenizer_name(self) -> str:
        return str(getattr(self.tokenizer, "name_or_path", "")).replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as one prompt; like ``hf``, leave the system role out if the
        template refuses it.
        """
        if getattr(self.tokenizer, "chat_template", None) is None:
            raise UserError("the model has no chat template; leave --apply_chat_template out")
        render = partial(
            self.tokenizer.apply_chat_template,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
        try:
            return str(render(chat_history))
        except TemplateError as error:
            log(
                f"the chat template refuses the conversation ({error}); the system message is left "
                "out"
            )
            return str(render([message for message in chat_history if message["role"] != "system"]))

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Return the ids of a string; with None, including the special ones that the tokenizer adds
        by itself.
        """
        if self.tokenizer is None:
            return list(self.vocabulary.encode(string, include=False).ids)
        if add_special_tokens is None:  # a chat template may have written the first of them already
            add_special_tokens = not string.startswith(self.tokenizer.decode(self.prefix_token_id))
        return list(
            self.tokenizer.encode(string, add_special_tokens=add_special_tokens, verbose=False)
        )

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Return log-probabilities of whole documents, nats; with ``learn``, learn from them while
        reading.

        Without it each document is predicted as a request's text is.
        """
        totals = []
        for request in track(requests, "documents", len(requests), "documents"):
            (text,) = request.args
            if self.learn or self.tokenizer is None:
                begun, rest = self._document(text)
                self.reader.begin()
                scores = (
                    self.reader.read(begun, learn=False),
                    self.reader.read(rest, learn=self.learn),
                )
                totals.append(-sum(float(part.nll.double().sum()) for part in scores))
            else:
                ids = [self.prefix_token_id, *self.tok_encode(text)]
                totals.append(-float(self.reader.token_losses(ids).sum()))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, totals[-1])
        self.reader.begin()  # each later request would copy a long document's keys and values
        return totals

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return an answer to each prompt, up to the strings that end it; learns nothing."""
        answers = []
        for request in track(requests, "answers", len(requests), "answers"):
            prompt, options = request.args
            until = options.get("until") or []
            temperature = options.get("temperature", 1.0) if options.get("do_sample") else 0.0
            answers.append(
                self.reader.complete(
                    self.tok_encode(prompt) or [self.prefix_token_id],
                    max_new_tokens=options.get("max_gen_toks", GENERATED),
                    temperature=temperature,
                    seed=0,
                    until=[*([until] if isinstance(until, str) else until), *self._ends()],
                )
            )
            self.cache_hook.add_partial("generate_until", request.args, answers[-1])
        return answers

    def _document(self, text: str) -> tuple[Tensor, Text]:
        """Split off a special id before a document (at most 1,), which ``hf`` scores; nothing
        learns from it.

        It follows the id that every document begins with, so after the first document the reader
        would know it.
        """
        ids = torch.tensor(
            [] if self.tokenizer is None else self.tok_encode(text), dtype=torch.int64
        )
        special = int(ids[:1].tolist() == [self.prefix_token_id])
        return ids[:special], text if self.tokenizer is None else ids[special:]

    def _ends(self) -> list[str]:
        """Return the texts of tokens that end an answer in the model's own configuration, such as a
        turn's end.
        """
        if not isinstance(self.reader.model, HuggingFaceModel):
            return []
        ends = self.reader.model.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return [self.tokenizer.decode(end) for end in ends if end is not None]

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation, nats, and whether all its tokens are the
        most probable.
        """
        answers = []
        for words, context, continuation in track(
            requests, "continuations", len(requests), "continuations"
        ):
            ids = torch.tensor([*context, *continuation])
            # The last token is read as well, as by a server that goes on from there.
            scores = self.reader.log_probs(ids, last=len(continuation) + 1).cpu()  # (1 + N, V)
            answers.append(scored(scores[:-1], ids[len(context) :]))
            self.cache_hook.add_partial("loglikelihood", words, answers[-1])
        return answers


def widened(lm: LanguageModel, stride: int | None) -> LanguageModel:
    """Give a model of pieces the longest window that it allows, at most ``MAX_CONTEXT_TOKENS``
    tokens.
    """
    if not isinstance(lm.model, HuggingFaceModel):
        return lm
    context = max(lm.model.context, min(MAX_CONTEXT_TOKENS, longest(lm.model.model.config) or 0))
    return replace(
        lm, model=replace(lm.model, context=context, stride=stride or max(1, context // 2))
    )


def scored(log_probs: Tensor, targets: Tensor) -> tuple[float, bool]:
    """Return the sum of the targets' (N,) log-probabilities (N, V), nats, and whether each is the
    most probable.
    """
    total = log_probs.double().gather(1, targets[:, None]).sum()
    return float(total), bool((log_probs.argmax(1) == targets).all())


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except UserError as error:
        print(f"hebblm: error: {error}", file=sys.stderr)
        sys.exit(2)
