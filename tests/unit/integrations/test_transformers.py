from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import hebblm
from hebblm.errors import UserError

pytest.importorskip("transformers")

from hebblm.integrations.transformers import AdaptedLogitsProcessor

from ..models.architectures import random_model, tokenizer

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 3},
}
TEXT = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n" * 4


def generated(model: Any, *processors: Callable[..., torch.Tensor], **options: Any) -> torch.Tensor:
    prompts = torch.tensor([[5, 6, 7], [8, 9, 10]])
    torch.manual_seed(1)
    found: torch.Tensor = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        logits_processor=list(processors),
        max_new_tokens=8,
        pad_token_id=0,
        **options,
    )
    return found


def opened(name: str, method: str) -> tuple[Any, hebblm.Reader]:
    model = random_model(name)
    reader = hebblm.load((model, tokenizer())).reader(method, settings={"mixture.gamma": 0.9})
    reader.read(TEXT)
    return model, reader


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["Gemma2", "Mamba"])
def test_at_weight_zero_the_text_is_that_of_the_unadapted_model(name: str, way: str) -> None:
    model, reader = opened(name, "mixture")
    plain = generated(model, **WAYS[way])
    with AdaptedLogitsProcessor(reader, weight=0.0) as processor:
        assert torch.equal(generated(model, processor, **WAYS[way]), plain)
    with AdaptedLogitsProcessor(reader) as processor:
        assert not torch.equal(generated(model, processor, **WAYS[way]), plain)
    assert torch.equal(generated(model, **WAYS[way]), plain), "nothing is left behind"


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("method", ["mixture", "hebb", "ngram", "best"])
def test_each_greedy_token_is_the_most_probable_of_the_interpolation(
    method: str, weight: float
) -> None:
    model, reader = opened("Gemma2", method)
    with AdaptedLogitsProcessor(reader, weight=weight) as processor:
        text = generated(model, processor, **WAYS["greedy"])
    for row in text:
        for place in range(3, len(row)):
            adapted = reader.log_probs(row[:place])[0].exp()
            base = model(row[None, :place]).logits[0, -1].softmax(0)
            mixed = weight * adapted + (1 - weight) * base
            assert mixed[row[place]] >= mixed.max() - 1e-6


def test_a_forbidden_token_stays_forbidden() -> None:
    model, reader = opened("Llama", "mixture")
    with AdaptedLogitsProcessor(reader) as processor:
        free = generated(model, processor, **WAYS["greedy"])
        word = int(free[0, 3])
        bound = generated(model, processor, bad_words_ids=[[word]], **WAYS["greedy"])
    assert word not in bound[0, 3:].tolist()


@pytest.mark.parametrize("change", ["penalty", "allowed", "groups of beams", "normalised"])
def test_what_other_processors_change_in_single_tokens_stays(change: str) -> None:
    """The difference is added after any of them, and no pass is taken for another."""
    options: dict[str, Any] = {
        "penalty": {"repetition_penalty": 1.3, "min_new_tokens": 6},
        "allowed": {"prefix_allowed_tokens_fn": lambda row, ids: [5, 6, 11]},
        "groups of beams": {"num_beams": 4, "length_penalty": 0.5},
        "normalised": {"renormalize_logits": True, "suppress_tokens": [4, 9]},
    }[change]
    model, reader = opened("Llama", "mixture")
    with AdaptedLogitsProcessor(reader) as processor:
        found = generated(model, processor, do_sample=False, **options)
    assert found.shape[1] > 3
    assert change != "allowed" or set(found[:, 3:].flatten().tolist()) <= {5, 6, 11}


@pytest.mark.parametrize("negative", [None, [[12, 13]]])
@pytest.mark.parametrize("scale", [1.5, 0.5])
def test_guidance_is_refused(scale: float, negative: list[list[int]] | None) -> None:
    model, reader = opened("Llama", "mixture")
    options = {} if negative is None else {"negative_prompt_ids": torch.tensor(negative)}
    prompt = torch.tensor([[5, 6, 7]])
    with AdaptedLogitsProcessor(reader) as processor:
        with pytest.raises(
            UserError, match="not those of the model's last pass; generate without guidance_scale"
        ):
            model.generate(
                prompt,
                guidance_scale=scale,
                logits_processor=[processor],
                max_new_tokens=4,
                pad_token_id=0,
                **options,
            )
        model.generate(
            prompt,
            guidance_scale=1.0,
            logits_processor=[processor],
            max_new_tokens=4,
            pad_token_id=0,
        )


def test_a_processor_before_it_that_changes_all_scores_or_reads_the_model_is_refused() -> None:
    model, reader = opened("Llama", "mixture")

    def halved(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores / 2

    def reads(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        model(torch.tensor([[9, 9], [3, 4]]))
        return scores

    with AdaptedLogitsProcessor(reader) as processor:
        for before in (halved, reads):
            with pytest.raises(
                UserError, match="put this processor before others that change all scores"
            ):
                generated(model, before, processor, **WAYS["greedy"])
            generated(model, processor, before, **WAYS["greedy"])


@pytest.mark.parametrize("way", ["greedy", "beams", "static"])
@pytest.mark.parametrize("name", ["GPT2", "Llama", "Mamba"])
def test_padding_at_the_left_is_no_text(name: str, way: str) -> None:
    """The pad token was read within the text, so contexts that hold it would be found."""
    if way == "static" and name == "Mamba":
        pytest.skip("it has no cache of attention")
    model = random_model(name)
    reader = hebblm.load((model, tokenizer())).reader("ngram")
    reader.read("h the fat.\ne the fin.\n" * 6)
    begin, pad, *prompt = 1, *tokenizer()("h the f")["input_ids"]
    prompts = [prompt, [begin, 8, 9, *prompt]]
    options: dict[str, Any] = WAYS.get(way) or {
        "do_sample": False,
        "cache_implementation": "static",
    }

    def scores(rows: list[list[int]], token: int) -> tuple[torch.Tensor, ...]:
        width = max(map(len, rows))
        ids = torch.tensor([[token] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        with AdaptedLogitsProcessor(reader) as processor:
            out = model.generate(
                ids, attention_mask=mask, logits_processor=[processor], max_new_tokens=3,
                min_new_tokens=3,
                pad_token_id=token, output_scores=True, return_dict_in_generate=True, **options
            )  # fmt: skip
        found: tuple[torch.Tensor, ...] = out.scores
        return found

    beams = options.get("num_beams", 1)
    alone = [scores([row], 0) for row in prompts]
    for token in (pad, begin):
        together = scores(prompts, token)
        for step, both in enumerate(together):
            for row, own in enumerate(alone):
                torch.testing.assert_close(
                    both[row * beams : (row + 1) * beams], own[step], atol=1e-4, rtol=1e-4
                )


@pytest.mark.parametrize("proposed", ["by a second model", "from the prompt"])
def test_several_tokens_proposed_at_once_are_refused(proposed: str) -> None:
    model, reader = opened("Llama", "mixture")
    second = proposed == "by a second model"
    options = (
        {"assistant_model": random_model("Llama")} if second else {"prompt_lookup_num_tokens": 2}
    )
    prompt = torch.tensor([[5, 6, 7, 5, 6]])  # a token is looked up behind its earlier occurrence
    with (
        AdaptedLogitsProcessor(reader) as processor,
        pytest.raises(UserError, match="generate without drafts"),
    ):
        model.generate(
            prompt,
            logits_processor=[processor],
            max_new_tokens=8,
            do_sample=False,
            pad_token_id=0,
            **options,
        )


def test_a_closed_processor_says_so_and_a_forgotten_one_lets_its_reader_go() -> None:
    model, reader = opened("Llama", "mixture")
    with AdaptedLogitsProcessor(reader) as processor:
        pass
    with pytest.raises(UserError, match="was closed"):
        generated(model, processor, **WAYS["greedy"])
    forgotten, held = AdaptedLogitsProcessor(reader), weakref.ref(reader)
    del processor, reader, forgotten
    gc.collect()
    assert held() is None
    assert not model.lm_head._forward_pre_hooks


def test_passes_of_another_thread_are_not_taken_for_those_that_generate() -> None:
    model, reader = opened("Llama", "mixture")
    with AdaptedLogitsProcessor(reader) as processor, ThreadPoolExecutor(1) as pool:

        def meanwhile(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            pool.submit(model, torch.tensor([[9, 9], [3, 4]])).result()
            return scores

        expected = generated(model, processor, **WAYS["greedy"])
        assert torch.equal(generated(model, meanwhile, processor, **WAYS["greedy"]), expected)
        assert torch.equal(
            pool.submit(generated, model, processor, **WAYS["greedy"]).result(), expected
        )


def test_another_model_and_a_wrong_weight_are_refused() -> None:
    _, reader = opened("Llama", "mixture")
    with pytest.raises(UserError, match="weight = 'a' must be a number"):
        AdaptedLogitsProcessor(hebblm.load("tiny-pydoc-raw").reader("mixture"), weight="a")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"weight = 1\.5"):
        AdaptedLogitsProcessor(reader, weight=1.5)
    with (
        AdaptedLogitsProcessor(reader) as processor,
        pytest.raises(UserError, match="another model"),
    ):
        generated(random_model("GPT2"), processor, **WAYS["greedy"])
    lm = hebblm.load((random_model("Llama"), tokenizer()))
    with pytest.raises(UserError, match="'dynamic' changes the weights"):
        AdaptedLogitsProcessor(
            lm.reader("dynamic", settings={"dynamic.rule": "sgd", "dynamic.lr": 0.01})
        )
    for key in ("ffn-input", 0):
        lm = hebblm.load((random_model("Llama"), tokenizer()), key=key)
        with pytest.raises(UserError, match=f"key='{key}'.*key='last'"):
            AdaptedLogitsProcessor(lm.reader("mixture"))
    with pytest.raises(UserError, match="is not a transformers model"):
        AdaptedLogitsProcessor(hebblm.load("tiny-pydoc-raw").reader("mixture"))
