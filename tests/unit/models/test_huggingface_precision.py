"""Half precision: models open as in float32, and what rounding cannot hide is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.errors import UserError
from hebblm.models.huggingface import probe
from hebblm.models.huggingface.open import open_causal
from hebblm.models.update import BaseUpdate

from .architectures import (
    ARCHITECTURES,
    CONTEXT,
    OTHERS,
    STRIDE,
    TEXT,
    opened,
    random_model,
    tokenizer,
)

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", [*ARCHITECTURES, *OTHERS])
def test_half_precision_opens_as_float32_does(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    full, *halves = (
        open_causal(random_model(name).to(dtype))
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    )
    for half in halves:
        assert (half.steps, half.carries, half.recurrent) == (
            full.steps,
            full.carries,
            full.recurrent,
        )
        assert half.differentiable == full.differentiable
        assert (half.found_head.cap, half.head.weight.dtype) == (full.found_head.cap, torch.float32)
        assert half.found_head.scale == pytest.approx(full.found_head.scale, rel=1e-4)
    assert full.describe()["steps"] == {"Mamba": "one", "Jamba": "one", "Bamba": "none"}.get(
        name, "many"
    )
    assert capfd.readouterr().err.count("window is read again for each interval") == 3 * (
        full.steps == "none"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_alone_is_enough_for_large_faults(dtype: torch.dtype) -> None:
    def refuse(_: Any, inputs: tuple[Tensor, ...]) -> None:
        assert inputs[0].dtype == dtype

    model = random_model("Llama").to(dtype)
    model.model.norm.register_forward_pre_hook(refuse)
    assert open_causal(model).describe()["steps"] == "many"
    capped = random_model("Gemma2").to(dtype)
    capped.model.norm.register_forward_pre_hook(refuse)
    assert open_causal(capped).found_head.cap == 1.5
    bert = both_ways().to(dtype)
    bert.bert.encoder.layer[0].register_forward_pre_hook(refuse)
    with torch.no_grad():
        bert.bert.encoder.layer[0].attention.self.value.weight.mul_(50)
    with pytest.raises(UserError, match="it is not causal"):
        open_causal(bert)


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_a_scale_near_1_is_one_in_half_precision_too(scale: float) -> None:
    model = open_causal(random_model("Cohere", logit_scale=scale).to(torch.bfloat16))
    assert model.found_head.scale == pytest.approx(scale, rel=1e-4)
    torch.testing.assert_close(
        model.head.weight,
        model.parameters[model.found_head.weight].float() * model.found_head.scale,
    )


def both_ways() -> Any:
    """Return a model in which later tokens change what comes before them."""
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    return transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=70, **shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_cannot_be_adapted_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match="it is not causal"):
        hebblm.load((both_ways().to(dtype), tokenizer()))
    for change in (torch.square, lambda logits: 30 * (logits / 30).tanh()):
        odd = random_model("Llama").to(dtype)

        def forward(
            *args: Any, plain: Any = odd.forward, change: Any = change, **options: Any
        ) -> Any:
            out = plain(*args, **options)
            out.logits = change(out.logits)
            return out

        odd.forward = forward
        with pytest.raises(UserError, match="not its output layer's"):
            hebblm.load((odd, tokenizer()))
    with pytest.raises(UserError, match=r"21 weights of LlamaForCausalLM .*device_map='cpu'"):
        hebblm.load((random_model("Llama").to("meta"), tokenizer()))
    small = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
    )
    with pytest.raises(UserError, match="use the model's own tokenizer"):
        hebblm.load((transformers.LlamaForCausalLM(small), tokenizer()))
    with pytest.raises(UserError, match="is not a language model"):
        hebblm.load((torch.nn.Linear(2, 2), tokenizer()))
    with pytest.raises(UserError, match="fast tokenizer"):
        hebblm.load((random_model("Llama"), transformers.ByT5Tokenizer()))


def rounding_by_shape(model: Any) -> Any:
    """Return the model with states that each shape of a pass rounds otherwise, by more than tests
    once allowed.
    """

    def rounded(_: Any, __: Any, out: Tensor) -> Tensor:
        size = 5000.0 * out.shape[0] * out.shape[1]
        return (out + size) - size  # the same number, but for rounding

    model.model.norm.register_forward_hook(rounded)
    return model


def test_rounding_that_depends_on_the_shape_accuses_no_model() -> None:
    model = open_causal(rounding_by_shape(random_model("Llama")), context=CONTEXT, stride=STRIDE)
    ids = model.probe_ids[None]
    with torch.no_grad():
        gap = (
            (model.states(ids[:, :5], None, {})[0] - model.states(ids, None, {})[0][:, :5])
            .abs()
            .max()
        )
    assert gap > 10 * probe.LOOSE * torch.finfo(torch.float32).eps
    assert model.describe()["steps"] == "many"
    assert model.base(streams=2) is not None
    assert model.base()._branching


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_float64_does_not_compute_the_effect_of_later_tokens_tells(
    dtype: torch.dtype,
) -> None:
    def refuse(_: Any, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].dtype == torch.float64:
            raise TypeError("this device has no float64")

    model = rounding_by_shape(random_model("Llama").to(dtype))
    model.model.norm.register_forward_pre_hook(refuse)
    assert open_causal(model).describe()["steps"] == "none"  # states read in two ways differ
    bert = both_ways().to(dtype)
    bert.bert.encoder.layer[0].register_forward_pre_hook(refuse)
    with pytest.raises(UserError, match="it is not causal"):
        open_causal(bert)


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
    assert base.head.weight.data_ptr() == base.parameters()[model.found_head.weight].data_ptr()
    again = model.base(update=BaseUpdate(lr=1e-4))
    again.load_state_dict(base.state_dict())
    assert torch.equal(again.head.weight, base.head.weight)
    assert {squares.dtype for squares in model.mean_squares(ids.numpy(), 5)} == {torch.float32}
    some = open_causal(random_model("Llama").to(torch.bfloat16), learns=("norm",)).base(
        update=BaseUpdate(lr=1e-4)
    )
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


def test_a_model_without_room_for_float32_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    plain = opened("Llama")
    monkeypatch.setattr(probe.Wide, "__torch_function__", refuse)
    lm = hebblm.load(
        (random_model("Llama").to(torch.bfloat16), tokenizer()), context=CONTEXT, stride=STRIDE
    )
    assert capfd.readouterr().err.count("not enough memory to check this model in float32") == 1
    scores, full = lm.reader("mbpa").read(TEXT), plain.reader("mbpa").read(TEXT)
    assert scores.nll.dtype == lm.model.head.weight.dtype == torch.float32
    assert scores.loss == pytest.approx(full.loss, rel=0.05)
    assert lm.model.sha256 != plain.model.sha256
