"""Every architecture through the front door: what the reader predicts is what the model predicts."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import hebblm
from hebblm.errors import UserError
from hebblm.models.huggingface.load import load_causal
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.models.huggingface.open import open_causal
from hebblm.models.update import BaseUpdate

from .architectures import ARCHITECTURES, OTHERS, random_model, tokenizer

transformers = pytest.importorskip("transformers")

TEXT = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n"
CONTEXT, STRIDE = 16, 6


def opened(name: str, *, begins: bool = False, **options: Any) -> hebblm.LanguageModel:
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    pieces = tokenizer(begins=begins)
    return hebblm.load((random_model(name), pieces), **{"context": CONTEXT, "stride": STRIDE, **options})


def windows(model: Any, ids: Tensor, begins: bool = False) -> Tensor:
    """Return log-probabilities (T, V) after each of the ids (T,), from windows read whole, each from ``<s>`` or not."""
    parts, done = [model(ids[None, :CONTEXT]).logits[0]], CONTEXT
    while done < len(ids):
        begin = done - (CONTEXT - STRIDE)
        window = ids[None, begin : done + STRIDE].clone()
        window[0, 0] = 1 if begins else window[0, 0]
        parts.append(model(window).logits[0, CONTEXT - STRIDE :])
        done += STRIDE
    return torch.cat(parts)[: len(ids)].log_softmax(-1)


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.no_grad()
def test_the_unadapted_reader_is_the_model_token_by_token(name: str) -> None:
    lm = opened(name)
    model = lm.model
    assert isinstance(model, HuggingFaceModel)
    scores = lm.reader("lstm", update_every=7).read(TEXT)
    ids = torch.tensor(tokenizer()(TEXT, add_special_tokens=False)["input_ids"])
    inputs = torch.cat([torch.tensor([1]), ids[:-1]])
    whole = model.model(inputs[None]).logits[0].log_softmax(-1)
    expected = whole if model.recurrent else windows(model.model, inputs)
    torch.testing.assert_close(scores.nll, -expected.gather(1, ids[:, None])[:, 0], atol=2e-5, rtol=1e-5)
    assert len(ids) > 2 * CONTEXT
    assert model.recurrent or not torch.allclose(whole, expected, atol=1e-2), "the window is there to be seen"
    reader = lm.reader("mixture+hebb")
    reader.read(TEXT)
    before = reader._base.state()
    best = reader.suggest("the", 3)
    assert best == reader.suggest("the", 3)
    assert best[0].probability >= best[1].probability > 0
    drawn = [reader.generate("the", max_new_tokens=most, seed=3) for most in (4, 4, 8)]
    assert drawn[0] == drawn[1]
    assert drawn[2].startswith(drawn[0])
    assert all(torch.equal(before[key], value) for key, value in reader._base.state().items())


@pytest.mark.parametrize("name", ["Llama", "Gemma2", "Mamba"])
@torch.no_grad()
def test_each_window_begins_as_the_tokenizer_lets_a_text_begin(name: str) -> None:
    lm = opened(name, begins=True)
    model = lm.model
    assert isinstance(model, HuggingFaceModel)
    assert (model.begin, model.reading()["begin"], opened(name).model.reading().get("begin")) == (1, 1, None)
    ids = torch.tensor(tokenizer()(TEXT, add_special_tokens=False)["input_ids"])
    inputs = torch.cat([torch.tensor([1]), ids[:-1]])
    whole = model.model(inputs[None]).logits[0].log_softmax(-1)
    expected = whole if model.recurrent else windows(model.model, inputs, begins=True)
    scores = lm.reader("lstm", update_every=7).read(TEXT)
    torch.testing.assert_close(scores.nll, -expected.gather(1, ids[:, None])[:, 0], atol=2e-5, rtol=1e-5)
    # A training text is read in windows of its own, whatever is carried, and has such a token in front itself or not.
    for text in (ids, inputs):
        keys = torch.cat([segment.keys for segment in model.segments(text.numpy())])
        for start in range(0, len(text) - 1, STRIDE):
            first, stop = max(0, start - (CONTEXT - STRIDE - 1)), min(start + STRIDE, len(text) - 1)
            begun = [] if first == 0 and int(text[0]) == 1 else [1]
            window = torch.tensor([*begun, *text[first:stop].tolist()])
            states = model.states(window[None], None, {})[0][0, len(begun) + start - first :]
            torch.testing.assert_close(keys[start:stop], states, atol=1e-5, rtol=1e-4)


def test_gradients_are_those_of_windows_that_begin_as_the_tokenizer_lets_them() -> None:
    model, ids = opened("Llama", begins=True).model, np.arange(3, 63)
    rows = torch.from_numpy(ids.reshape(3, 20))
    parameters = model.base().parameters()
    sums = [torch.zeros_like(weight) for weight in parameters.values()]
    for start in (8, 16):
        window = rows[:, start - 8 : start + 8].clone()
        window[:, 0] = 1
        stop = min(start + 8, 19)
        states, _ = model.states(window[:, : 8 + stop - start], None, parameters)  # type: ignore[attr-defined]
        logits = states[:, 8:] @ parameters["lm_head.weight"].t()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, start + 1 : stop + 1].flatten())
        for total, gradient in zip(sums, torch.autograd.grad(loss, list(parameters.values())), strict=True):
            total += gradient.square() / 2
    torch.testing.assert_close(model.mean_squares(ids, 8), sums)


@pytest.mark.parametrize("name", ["Gemma2", "Granite", "Mamba", "Rwkv", "Bloom"])
@pytest.mark.parametrize("method", ["mixture", "mbpa", "cache"])
def test_a_saved_reader_goes_on(name: str, method: str, tmp_path: Path) -> None:
    lm = opened(name)
    reader = lm.reader(method)
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    again = lm.reader(method, memory=tmp_path / "known")
    rest = "A cat in the fog.\n"
    torch.testing.assert_close(again.read(rest).nll, reader.read(rest).nll, atol=1e-4, rtol=1e-4)
    other = hebblm.load((random_model("OPT"), tokenizer()))
    with pytest.raises(UserError, match="model"):
        other.reader(method, memory=tmp_path / "known")


def test_greedy_text_at_weight_0_is_that_of_the_model() -> None:
    lm = opened("Llama", context=64)
    reader = lm.reader("mixture", settings={"mixture.gamma": 0.0})
    prompt = "the cat in"
    ids = torch.tensor([[1, *tokenizer()(prompt, add_special_tokens=False)["input_ids"]]])
    model = lm.model.model  # type: ignore[attr-defined]
    told = model.generate(ids, max_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids))
    expected = [index for index in told[0, ids.shape[1] :].tolist() if index != 2]
    found = reader.generate(prompt, max_new_tokens=12, temperature=0)
    assert found == tokenizer().decode(expected, clean_up_tokenization_spaces=False)


def test_the_caller_s_model_stays_as_it_is_and_its_losses_add_up_by_word() -> None:
    model = random_model("GPT2").train()
    before = copy.deepcopy(model.state_dict())
    lm = hebblm.load((model, tokenizer()))
    scores = lm.reader("mbpa").read(TEXT)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    words = scores.by_word()
    assert words.tokens == tuple(word for line in TEXT.splitlines() for word in (*line.split(), "\n"))
    assert float(words.nll.sum()) == pytest.approx(float(scores.nll.sum()), rel=1e-6)
    assert "".join(scores.tokens) == TEXT
    bits = float(scores.nll.double().sum()) / math.log(2)
    assert scores.bits_per_byte == pytest.approx(bits / len(TEXT.encode()))
    assert words.unadapted is not None
    assert scores.word_perplexity == words.perplexity != scores.perplexity


def test_a_model_back_in_train_mode_is_read_without_dropout_and_left_so() -> None:
    model = random_model("GPT2")
    lm = hebblm.load((model, tokenizer()))
    expected = lm.reader("mixture").read(TEXT).nll
    model.train()
    model.transformer.h[0].eval()  # as of layers that do not learn
    modes = [module.training for module in model.modules()]
    assert torch.equal(lm.reader("mixture").read(TEXT).nll, expected)
    assert [module.training for module in model.modules()] == modes


def test_readers_of_one_model_and_its_owner_compute_beside_each_other_in_threads() -> None:
    model = random_model("Llama")
    lm = hebblm.load((model, tokenizer()))
    settings = {"dynamic.rule": "sgd", "dynamic.lr": 0.5}
    methods = ("mixture", "dynamic", "cache")
    expected = [lm.reader(method, settings=settings, update_every=5).read(TEXT).nll for method in methods]
    started = threading.Barrier(len(methods))

    def read(method: str) -> Tensor:
        started.wait()
        again = hebblm.load((model, tokenizer()))  # reads a few tokens, of the same module
        return again.reader(method, settings=settings, update_every=5).read(TEXT).nll

    with ThreadPoolExecutor(len(methods)) as pool:
        for nll, plain in zip(pool.map(read, methods), expected, strict=True):
            assert torch.equal(nll, plain)


def test_only_passes_of_the_reader_s_own_thread_are_cut_and_noted() -> None:
    model, ids = random_model("Llama"), torch.arange(3, 13)[None]
    lm = opened("Llama")
    expected, found = model(ids).logits, []
    layer = lm.model.model.model.layers[0]  # type: ignore[attr-defined]

    def meanwhile(*_: object) -> None:  # in the midst of the reader's pass
        hook.remove()
        other = threading.Thread(target=lambda: found.append(lm.model.model(ids).logits))  # type: ignore[attr-defined]
        other.start()
        other.join()

    hook = layer.register_forward_pre_hook(meanwhile)
    states, _ = lm.model.states(ids[:, :4], None, {})  # type: ignore[attr-defined]
    assert torch.equal(found[0], expected)
    assert states.shape[:2] == (1, 4)


@pytest.mark.parametrize("way", ["one number", "load_state_dict", "data", "fused", "replaced"])
def test_weights_that_changed_since_are_refused(way: str, tmp_path: Path) -> None:
    model = random_model("Llama")
    lm = hebblm.load((model, tokenizer()))
    reader = lm.reader("mixture")
    reader.read(TEXT)
    reader.save(tmp_path / "before")
    weight = model.lm_head.weight
    if way == "one number":
        with torch.no_grad():
            weight[3, 5] += 1
    elif way == "load_state_dict":
        model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
    elif way == "data":
        weight.data = 2 * weight.data
    elif way == "fused":  # counts no change
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model(torch.arange(3, 13)[None], labels=torch.arange(3, 13)[None]).loss.backward()
        optimizer.step()
    else:
        model.resize_token_embeddings(80)
    for call in (lambda: lm.reader("mixture"), lambda: reader.save(tmp_path / "after")):
        with pytest.raises(UserError, match=r"the weights changed since hebblm\.load; load the model anew"):
            call()
    assert not (tmp_path / "after").exists()
    hebblm.load((model, tokenizer())).reader("mixture")


def test_a_reader_is_copied_with_its_model() -> None:
    lm = opened("Llama")
    expected = lm.reader("mixture").read(TEXT).nll
    for again in (copy.deepcopy(lm.model), pickle.loads(pickle.dumps(lm.model))):
        assert again.sha256 == lm.model.sha256
        reader = hebblm.Reader(again, lm.vocabulary.fresh("auto"), "mixture")  # type: ignore[attr-defined]
        assert torch.equal(reader.read(TEXT).nll, expected)


def test_a_compiled_model_is_read_as_the_model_that_it_is() -> None:
    model = random_model("Llama")
    plain = hebblm.load((model, tokenizer()))
    compiled = hebblm.load((torch.compile(model), tokenizer()))
    assert (compiled.name, compiled.model.sha256) == (plain.name, plain.model.sha256)
    assert compiled.model.describe()["steps"] == "many"
    assert torch.equal(compiled.reader("mixture").read(TEXT).nll, plain.reader("mixture").read(TEXT).nll)


def test_the_window_is_checked_and_the_model_s_own_where_none_is_asked_for() -> None:
    model = random_model("Llama")
    assert (open_causal(model).context, open_causal(model).stride) == (64, 32)
    endless = random_model("Bloom")
    endless.config.max_position_embeddings = None
    assert open_causal(endless).context == 1024
    for context, stride, told in ((65, None, "64"), (1, None, "context = 1"), (8, 8, "stride = 8")):
        with pytest.raises(UserError, match=told):
            open_causal(model, context=context, stride=stride)


def test_what_is_set_where_a_model_is_loaded_is_refused_later(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    lm = opened("Llama")
    for option, value in (("key", "ffn-input"), ("dtype", "float16"), ("context", 8)):
        with pytest.raises(UserError, match=rf"{option} is set where a model is loaded: hebblm.load\(..., {option}="):
            hebblm.evaluate(lm, tmp_path / "a.txt", ["knn"], **{option: value})


def test_gradient_statistics_stay_within_the_window() -> None:
    model, ids = opened("GPT2", context=None, stride=None).model, np.arange(240) % 20
    assert model.context == 64
    squares = model.mean_squares(ids, 50)  # the window has no room for as many tokens before a segment
    assert all(bool(torch.isfinite(square).all()) for square in squares)
    with pytest.raises(UserError, match=r"dynamic.segment = 70 must be at most the 64 tokens"):
        model.mean_squares(ids, 70)


@torch.no_grad()
def test_training_states_are_those_of_windows_in_the_order_of_the_text() -> None:
    model = open_causal(random_model("Llama"), context=16, stride=6)
    ids = torch.randint(3, 60, (4 * 4096 // 16 * 6 + 5,), generator=torch.Generator().manual_seed(0)).numpy()
    segments = list(model.segments(ids))
    assert len(segments) == model.segment_count(len(ids) - 1) == 5
    keys, labels = torch.cat([part.keys for part in segments]), torch.cat([part.labels for part in segments])
    assert labels.tolist() == ids[model.label_places(len(ids) - 1)].tolist()
    for start in (0, 6, 12, 600, 6000):  # windows at other places than those of a batch
        first = max(0, start - 10)
        expected, _ = model.states(torch.from_numpy(ids[None, first : start + 6]), None, {})
        torch.testing.assert_close(keys[start : start + 6], expected[0, start - first :], atol=1e-5, rtol=1e-4)
    rest = list(model.segments(ids, done=3))
    assert torch.equal(rest[0].keys, segments[3].keys)
    shares = [list(model.segments(ids, 3, None, rank, 2)) for rank in range(2)]
    for index, segment in enumerate(rest):
        assert torch.equal(torch.cat([share[index].labels for share in shares]), segment.labels)
        torch.testing.assert_close(torch.cat([share[index].keys for share in shares]), segment.keys)


@pytest.mark.parametrize("segment", [1, 5])
@pytest.mark.parametrize("name", ["Llama", "Mamba", "Mamba2", "Rwkv"])
def test_dynamic_evaluation_takes_segments_of_any_length(name: str, segment: int) -> None:
    from hebblm.models.dynamic import DynamicBase, DynamicConfig

    base = DynamicBase(opened(name).model.base(), DynamicConfig("sgd", lr=0.05), None)
    ids = torch.tensor(tokenizer()(TEXT, add_special_tokens=False)["input_ids"])[:31]
    before = [weight.clone() for weight in base.parameters().values()]
    for start in range(0, 30, segment):
        with torch.no_grad():
            base.read(ids[start : start + segment])
        base.learn(ids[start + 1 : start + segment + 1])
    after = list(base.parameters().values())
    assert sum(not old.equal(new) for old, new in zip(before, after, strict=True)) > len(after) // 2


@pytest.mark.parametrize("rule", ["sgd", "rms"])
@pytest.mark.parametrize("name", ["Llama", "Gemma2", "Mamba2", "Rwkv"])
def test_dynamic_evaluation_learns_and_returns(name: str, rule: str) -> None:
    from hebblm.models.dynamic import DynamicBase, DynamicConfig

    model = opened(name).model
    ids = torch.tensor(tokenizer()(TEXT * 3, add_special_tokens=False)["input_ids"])
    squares = model.mean_squares(ids.numpy(), 8) if rule == "rms" else None
    base = DynamicBase(model.base(), DynamicConfig(rule, lr={"sgd": 0.05, "rms": 0.002}[rule], decay=0.0), squares)  # type: ignore[arg-type]

    def run() -> list[float]:
        losses = []
        for start in range(0, len(ids) - 10, 10):
            with torch.no_grad():  # as the evaluation reads
                hidden = base.read(ids[start : start + 10])
            labels = ids[start + 1 : start + 11]
            losses.append(float(torch.nn.functional.cross_entropy(base.head.logits(hidden), labels)))
            base.learn(labels)
        return losses

    first, trained = run(), model.head.weight.clone()
    assert sum(first[-5:]) < 0.9 * sum(first[:5])
    assert torch.equal(model.head.weight, trained)
    base.reset()
    torch.testing.assert_close(run(), first)


def test_only_named_weights_of_a_large_model_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("GPT2")
    assert len(open_causal(model).learns) == len(list(model.named_parameters()))
    monkeypatch.setattr("hebblm.models.huggingface.open.LARGE", 1000)
    chosen = open_causal(model).learns
    assert {"transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.h.1.mlp.c_fc.bias"} <= set(chosen)
    assert "transformer.h.0.mlp.c_fc.weight" not in chosen
    assert open_causal(model, learns=("h.1.",)).describe()["learning_parameters"] < 20_000
    with pytest.raises(UserError, match="'nothing'"):
        open_causal(model, learns=("nothing",))


def test_half_precision_comes_in_and_float32_matters() -> None:
    lm = hebblm.load((random_model("Llama").to(torch.bfloat16), tokenizer()))
    assert lm.model.head.weight.dtype == torch.float32
    scores, full = lm.reader("mbpa").read(TEXT), opened("Llama", context=64).reader("mbpa").read(TEXT)
    assert scores.nll.dtype == torch.float32
    assert scores.loss == pytest.approx(full.loss, rel=0.05)
    assert lm.model.sha256 != opened("Llama").model.sha256


@pytest.mark.parametrize("name", [*ARCHITECTURES, *OTHERS])
def test_half_precision_opens_as_float32_does(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    full, *halves = (
        open_causal(random_model(name).to(dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float16)
    )
    for half in halves:
        assert (half.steps, half.carries, half.recurrent) == (full.steps, full.carries, full.recurrent)
        assert half.differentiable == full.differentiable
        assert (half.found.cap, half.head.weight.dtype) == (full.found.cap, torch.float32)
        assert half.found.scale == pytest.approx(full.found.scale, rel=1e-4)
    assert full.describe()["steps"] == {"Mamba": "one", "Jamba": "one", "Bamba": "none"}.get(name, "many")
    assert capfd.readouterr().err.count("window is read anew for each interval") == 3 * (full.steps == "none")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_alone_is_enough_for_large_faults(dtype: torch.dtype) -> None:
    def refuse(_: Any, inputs: tuple[Tensor, ...]) -> None:
        assert inputs[0].dtype == dtype

    model = random_model("Llama").to(dtype)
    model.model.norm.register_forward_pre_hook(refuse)
    assert open_causal(model).describe()["steps"] == "many"
    capped = random_model("Gemma2").to(dtype)
    capped.model.norm.register_forward_pre_hook(refuse)
    assert open_causal(capped).found.cap == 1.5
    bert = both_ways().to(dtype)
    bert.bert.encoder.layer[0].register_forward_pre_hook(refuse)
    with torch.no_grad():
        bert.bert.encoder.layer[0].attention.self.value.weight.mul_(50)
    with pytest.raises(UserError, match="no causal language model"):
        open_causal(bert)


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_a_scale_near_1_is_one_in_half_precision_too(scale: float) -> None:
    model = open_causal(random_model("Cohere", logit_scale=scale).to(torch.bfloat16))
    assert model.found.scale == pytest.approx(scale, rel=1e-4)
    torch.testing.assert_close(model.head.weight, model.parameters[model.found.weight].float() * model.found.scale)


def test_a_large_layer_is_compared_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            sizes.append(out.numel() if isinstance(out, Tensor) and out.dtype == torch.float64 else 0)
            return out

    monkeypatch.setattr("hebblm.models.huggingface.head.ROWS", 16)
    with Noted():
        found = open_causal(random_model("Granite"), context=4)
    assert 0 < max(sizes) <= 16 * 32 < 70 * 32
    assert found.found.scale == pytest.approx(0.25)


def both_ways() -> Any:
    """Return a model in which later tokens change what comes before them."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    return transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=70, **shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_cannot_be_adapted_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match="no causal language model"):
        hebblm.load((both_ways().to(dtype), tokenizer()))
    for change in (torch.square, lambda logits: 30 * (logits / 30).tanh()):
        odd = random_model("Llama").to(dtype)

        def forward(*args: Any, plain: Any = odd.forward, change: Any = change, **options: Any) -> Any:
            out = plain(*args, **options)
            out.logits = change(out.logits)
            return out

        odd.forward = forward
        with pytest.raises(UserError, match="not its output layer's"):
            hebblm.load((odd, tokenizer()))
    with pytest.raises(UserError, match=r"21 weights of LlamaForCausalLM .*device_map='cpu'"):
        hebblm.load((random_model("Llama").to("meta"), tokenizer()))
    small = transformers.LlamaConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48
    )
    with pytest.raises(UserError, match="another model"):
        hebblm.load((transformers.LlamaForCausalLM(small), tokenizer()))
    with pytest.raises(UserError, match="no language model"):
        hebblm.load((torch.nn.Linear(2, 2), tokenizer()))
    with pytest.raises(UserError, match="fast tokenizer"):
        hebblm.load((random_model("Llama"), object()))


def test_small_steps_reach_weights_of_half_precision() -> None:
    model = open_causal(random_model("Llama").to(torch.bfloat16), context=CONTEXT, stride=STRIDE)
    kept = {name: weight.clone() for name, weight in model.parameters.items()}
    base, ids = model.base(update=BaseUpdate(lr=1e-4)), torch.arange(3, 33)
    for start in range(0, 20, 10):
        base.read(ids[start : start + 10])
        base.learn(ids[start + 1 : start + 11])
    for name, weight in base.parameters().items():
        assert weight.dtype == torch.float32
        assert (weight != kept[name]).float().mean() > 0.5 or "_proj" not in name
        assert torch.equal(model.parameters[name], kept[name])
    assert base.head.weight.data_ptr() == base.parameters()[model.found.weight].data_ptr()
    again = model.base(update=BaseUpdate(lr=1e-4))
    again.go_on(base.position())
    assert torch.equal(again.head.weight, base.head.weight)
    assert {squares.dtype for squares in model.mean_squares(ids.numpy(), 5)} == {torch.float32}
    some = open_causal(random_model("Llama").to(torch.bfloat16), learns=("norm",)).base(update=BaseUpdate(lr=1e-4))
    some.read(ids)
    assert some.head is some.head


def test_weights_that_are_no_numbers_stay_in_their_places() -> None:
    class Eight(torch.nn.Module):
        def __init__(self, plain: torch.nn.Linear) -> None:
            super().__init__()
            scale = float(plain.weight.detach().abs().max()) / 127
            weight = (plain.weight.detach() / scale).round().to(torch.int8)
            self.weight = torch.nn.Parameter(weight, requires_grad=False)
            self.weight.scale = scale  # type: ignore[attr-defined]

        def forward(self, states: Tensor) -> Tensor:
            return states @ (self.weight.float() * self.weight.scale).t()  # type: ignore[operator]

    model = random_model("Llama")
    for layer in model.model.layers:
        layer.mlp.down_proj = Eight(layer.mlp.down_proj)
    base, ids = open_causal(model).base(update=BaseUpdate(lr=0.1)), torch.arange(3, 23)
    before = base.head.weight.clone()
    base.read(ids[:-1])
    base.learn(ids[1:])
    assert not torch.equal(base.head.weight, before)


def test_positions_that_change_with_the_length_limit_the_window() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    model = random_model("Phi3", rope_parameters=rope, original_max_position_embeddings=16)
    assert open_causal(model).context == 16
    with pytest.raises(UserError, match=r"context = 17 must lie between 2 and the model's 16 tokens, behind which"):
        open_causal(model, context=17)
    with pytest.raises(UserError, match="at most the 16 tokens"):
        open_causal(model).mean_squares(np.arange(240) % 20, 17)


def test_pieces_that_the_model_has_no_row_for_are_refused_where_they_occur() -> None:
    pieces = copy.deepcopy(tokenizer())
    pieces.add_tokens([f"[{index}]" for index in range(70)])
    reader = hebblm.load((random_model("Llama"), pieces)).reader("mixture")
    assert reader.read("the cat [0]").nll.isfinite().all()
    with pytest.raises(
        UserError, match=r"'\[69\]' in the text is piece \d+ of the tokenizer, and the model has 70 rows"
    ):
        reader.read("the cat [69]")


def test_where_a_model_lies_its_tokenizer_lies_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "inner")
    options, load = {}, transformers.AutoTokenizer.from_pretrained

    def noted(*args: Any, **given: Any) -> Any:
        options.update(given)
        return load(*args, **given)

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", noted)
    where = {"subfolder": "inner", "revision": "main", "token": False, "cache_dir": str(tmp_path / "cache")}
    load_causal(tmp_path, device=torch.device("cpu"), attn_implementation="eager", **where)
    assert options == {**where, "trust_remote_code": False}


def saved(folder: Path, **options: Any) -> Path:
    random_model("Llama").save_pretrained(folder, **options)
    tokenizer().save_pretrained(folder)
    return folder


def changed(folder: Path, file: str, key: str, value: Any) -> Path:
    """Change a value of a saved model."""
    document = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**document, key: value}))
    return folder


def test_weights_without_a_place_are_told_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = changed(saved(tmp_path / "model"), "config.json", "num_hidden_layers", 1)
    capfd.readouterr()
    hebblm.load(folder, device="cpu")
    (line,) = capfd.readouterr().err.splitlines()
    assert "holds 9 weights (model.layers.1." in line


@pytest.mark.parametrize(("kind", "answer"), [("llama", "y"), ("of-its-own", "n"), ("of-its-own", "y")])
def test_code_beside_a_model_is_never_run(
    kind: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = changed(saved(tmp_path / "model"), "config.json", "model_type", kind), tmp_path / "ran"
    (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\n")
    auto = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "theirs.Theirs")
    changed(folder, "config.json", "auto_map", auto)
    changed(folder, "tokenizer_config.json", "auto_map", {"AutoTokenizer": [None, "theirs.Theirs"]})
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])  # transformers adds that folder
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n" * 9))
    with nullcontext() if kind == "llama" else pytest.raises(UserError, match="model"):
        hebblm.load(folder, device="cpu")
    with pytest.raises(UserError, match="trust_remote_code = True"):
        hebblm.load(folder, device="cpu", trust_remote_code=True)
    assert not ran.exists()


def test_a_folder_is_loaded_and_bad_ones_get_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "model")
    lm = hebblm.load(folder, device="cpu", dtype="float32", context=CONTEXT, stride=STRIDE)
    found, expected = lm.reader("mixture").read(TEXT), opened("Llama").reader("mixture").read(TEXT)
    torch.testing.assert_close(found.nll, expected.nll)
    assert repr(lm).endswith("70 words)")
    pickled = saved(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    empty = saved(tmp_path / "empty")
    (empty / "model.safetensors").unlink()
    cut = saved(tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])
    other = tmp_path / "other"
    transformers.T5Config(d_model=8).save_pretrained(other)
    (other / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    bare = saved(tmp_path / "bare")
    (bare / "config.json").unlink()
    speechless, damaged = saved(tmp_path / "speechless"), saved(tmp_path / "damaged")
    for path in speechless.glob("tokenizer*"):
        path.unlink()
    (damaged / "tokenizer.json").write_text("{}")
    deeper = changed(saved(tmp_path / "deeper"), "config.json", "num_hidden_layers", 3)
    endless = changed(saved(tmp_path / "endless"), "config.json", "num_hidden_layers", 10**30)
    inverted = changed(saved(tmp_path / "inverted"), "config.json", "num_hidden_layers", -1)
    lengthy = changed(saved(tmp_path / "lengthy"), "tokenizer_config.json", "model_max_length", "x")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name, told in (
        (pickled, "pickled.*save_pretrained"), (empty, "no weights"), (cut, "cut short or damaged"),
        (other, "not a causal"), (bare, "no config.json"), (speechless, "none that is fast"), (damaged, "is damaged"),
        (deeper, "lacks 9 weights .*which would be random"), (inverted, "cannot read a text"),
        (endless, "is more than the 21 weights"),
        (lengthy, "cannot load the tokenizer"),
        ("./nowhere", "is no folder"), ("a/b/c", "a/b/c"),
        ("someone/nothing-there", "someone/nothing-there"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told) as error:
            hebblm.load(name, device="cpu")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="float8"):
        hebblm.load(folder, dtype="float8")
    with pytest.raises(UserError, match="context = 16"):
        hebblm.load("tiny-pydoc-raw", context=16)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"\.\[hf\]"):
        hebblm.load(folder)


@pytest.mark.parametrize("key", ["ffn-input", "0", -1])
@pytest.mark.parametrize("name", ["Llama", "GPT2", "OPT", "GPTNeoX"])
@torch.no_grad()
def test_memories_keep_another_layer_s_states(name: str, key: str | int) -> None:
    lm = opened(name, key=key)
    model = lm.model
    assert isinstance(model, HuggingFaceModel)
    plain = opened(name)
    unadapted, expected = (one.reader("base", update_every=5).read(TEXT) for one in (lm, plain))
    torch.testing.assert_close(unadapted.nll, expected.nll)
    reader = lm.reader("knn")
    assert (reader.read(TEXT).nll - plain.reader("knn").read(TEXT).nll).abs().max() > 1e-3
    ids = torch.tensor(tokenizer()(TEXT, add_special_tokens=False)["input_ids"])[:CONTEXT]
    out = model.model(ids[None], output_hidden_states=True)
    found = model.states(ids[None], None, {})[0][..., -model.key_width :]
    if key == "0":
        torch.testing.assert_close(found, out.hidden_states[1])
    [segment] = model.segments(ids.numpy()[:STRIDE])
    torch.testing.assert_close(segment.keys, found[0, : STRIDE - 1])
    assert model.sha256 != plain.model.sha256
    with pytest.raises(UserError, match="--key last"):
        lm.reader("mixture+mbpa").read(TEXT)
    with pytest.raises(UserError, match="'9'"):
        opened(name, key="9")
