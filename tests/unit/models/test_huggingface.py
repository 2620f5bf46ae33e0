"""Every architecture through the front door: what the reader predicts is what the model
predicts.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.errors import UserError
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.models.huggingface.open import open_causal
from hebblm.models.update import TRANSFORMERS

from .architectures import ARCHITECTURES, CONTEXT, STRIDE, TEXT, opened, random_model, tokenizer

pytest.importorskip("transformers")


def windows(model: Any, ids: Tensor, begins: bool = False) -> Tensor:
    """Return log-probabilities (T, V) after each of the ids (T,), from windows read whole, each
    from ``<s>`` or not.
    """
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
    torch.testing.assert_close(
        scores.nll, -expected.gather(1, ids[:, None])[:, 0], atol=2e-5, rtol=1e-5
    )
    assert len(ids) > 2 * CONTEXT
    assert model.recurrent or not torch.allclose(whole, expected, atol=1e-2), (
        "the window is there to be seen"
    )
    reader = lm.reader("mixture+hebb")
    reader.read(TEXT)
    before = reader.session.base.stream_state()
    best = reader.suggest("the", 3, budget=8)
    assert best == reader.suggest("the", 3, budget=8)
    assert best[0].probability >= best[1].probability > 0
    drawn = [reader.generate("the", max_new_tokens=most, seed=3) for most in (4, 4, 8)]
    assert drawn[0] == drawn[1]
    assert drawn[2].startswith(drawn[0])
    assert all(
        torch.equal(before[key], value) for key, value in reader.session.base.stream_state().items()
    )


@pytest.mark.parametrize("name", ["Llama", "Gemma2", "Mamba"])
@torch.no_grad()
def test_each_window_begins_as_the_tokenizer_lets_a_text_begin(name: str) -> None:
    lm = opened(name, begins=True)
    model = lm.model
    assert isinstance(model, HuggingFaceModel)
    assert (model.begin, model.reading()["begin"], opened(name).model.reading().get("begin")) == (
        1,
        1,
        None,
    )
    ids = torch.tensor(tokenizer()(TEXT, add_special_tokens=False)["input_ids"])
    inputs = torch.cat([torch.tensor([1]), ids[:-1]])
    whole = model.model(inputs[None]).logits[0].log_softmax(-1)
    expected = whole if model.recurrent else windows(model.model, inputs, begins=True)
    scores = lm.reader("lstm", update_every=7).read(TEXT)
    torch.testing.assert_close(
        scores.nll, -expected.gather(1, ids[:, None])[:, 0], atol=2e-5, rtol=1e-5
    )
    # A training text is read in windows of its own, whatever is carried, and has such a token in
    # front itself or not.
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
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), rows[:, start + 1 : stop + 1].flatten()
        )
        for total, gradient in zip(
            sums, torch.autograd.grad(loss, list(parameters.values())), strict=True
        ):
            total += gradient.square() / 2
    torch.testing.assert_close(model.mean_squares(ids, 8), sums)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Gemma2", "cache"),
        ("Granite", "mbpa"),
        ("Mamba", "mixture"),
        ("Rwkv", "cache"),
        ("Bloom", "mbpa"),
    ],
)
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
    told = model.generate(
        ids, max_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids)
    )
    expected = [index for index in told[0, ids.shape[1] :].tolist() if index != 2]
    found = reader.generate(prompt, max_new_tokens=12, temperature=0)
    assert found == tokenizer().decode(expected, clean_up_tokenization_spaces=False)


def test_the_window_is_checked_and_the_model_s_own_where_none_is_asked_for() -> None:
    model = random_model("Llama")
    assert (open_causal(model).context, open_causal(model).stride) == (64, 32)
    endless = random_model("Bloom")
    endless.config.max_position_embeddings = None
    assert open_causal(endless).context == 4096
    for context, stride, told in ((65, None, "64"), (1, None, "context = 1"), (8, 8, "stride = 8")):
        with pytest.raises(UserError, match=told):
            open_causal(model, context=context, stride=stride)


def test_gradient_statistics_stay_within_the_window() -> None:
    model, ids = opened("GPT2", context=None, stride=None).model, np.arange(240) % 20
    assert model.context == 64
    # the window has no room for as many tokens before a segment
    squares = model.mean_squares(ids, 50)
    assert all(bool(torch.isfinite(square).all()) for square in squares)
    with pytest.raises(UserError, match=r"dynamic.segment = 70 must be at most the 64 tokens"):
        model.mean_squares(ids, 70)


@torch.no_grad()
def test_training_states_are_those_of_windows_in_the_order_of_the_text() -> None:
    model = open_causal(random_model("Llama"), context=16, stride=6)
    ids = torch.randint(
        3, 60, (4 * 4096 // 16 * 6 + 5,), generator=torch.Generator().manual_seed(0)
    ).numpy()
    segments = list(model.segments(ids))
    assert len(segments) == model.segment_count(len(ids) - 1) == 5
    keys, labels = (
        torch.cat([part.keys for part in segments]),
        torch.cat([part.labels for part in segments]),
    )
    assert labels.tolist() == ids[model.label_places(len(ids) - 1)].tolist()
    for start in (0, 6, 12, 600, 6000):  # windows at other places than those of a batch
        first = max(0, start - 10)
        expected, _ = model.states(torch.from_numpy(ids[None, first : start + 6]), None, {})
        torch.testing.assert_close(
            keys[start : start + 6], expected[0, start - first :], atol=1e-5, rtol=1e-4
        )
    rest = list(model.segments(ids, done=3))
    assert torch.equal(rest[0].keys, segments[3].keys)
    shares = [list(model.segments(ids, 3, None, rank, 2)) for rank in range(2)]
    for index, segment in enumerate(rest):
        assert torch.equal(torch.cat([share[index].labels for share in shares]), segment.labels)
        torch.testing.assert_close(torch.cat([share[index].keys for share in shares]), segment.keys)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Llama", "sgd"),
        ("Llama", "rms"),
        ("Gemma2", "sgd"),
        ("Mamba", "rms"),
        ("Mamba2", "sgd"),
        ("Rwkv", "rms"),
    ],
)
def test_dynamic_evaluation_learns_and_returns(name: str, rule: str) -> None:
    model = opened(name).model
    ids = torch.tensor(tokenizer()(TEXT * 3, add_special_tokens=False)["input_ids"])
    squares = model.mean_squares(ids.numpy(), 8) if rule == "rms" else None
    base = DynamicBase(
        model.base(), DynamicConfig(rule, lr={"sgd": 0.05, "rms": 0.002}[rule], decay=0.0), squares
    )  # type: ignore[arg-type]

    def run(segment: int = 10, end: int = len(ids) - 10) -> list[float]:
        losses = []
        for start in range(0, end, segment):
            with torch.no_grad():  # as the evaluation reads
                hidden = base.read(ids[start : start + segment])
            labels = ids[start + 1 : start + segment + 1]
            losses.append(
                float(torch.nn.functional.cross_entropy(base.head.logits(hidden), labels))
            )
            base.learn(labels)
        return losses

    first, trained = run(), model.head.weight.clone()
    # it learns less at these rates
    assert sum(first[-5:]) < (0.97 if name == "Mamba" else 0.9) * sum(first[:5])
    assert torch.equal(model.head.weight, trained)
    base.reset()
    torch.testing.assert_close(run(), first)
    for segment in (1, 5):  # of any length
        base.reset()
        before = [weight.clone() for weight in base.parameters().values()]
        run(segment, 30)
        after = list(base.parameters().values())
        assert (
            sum(not old.equal(new) for old, new in zip(before, after, strict=True))
            > len(after) // 2
        )


def test_only_named_weights_of_a_large_model_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("GPT2")
    assert len(open_causal(model).learns) == len(list(model.named_parameters()))
    monkeypatch.setattr("hebblm.models.huggingface.open.LARGE", 1000)
    assert open_causal(model).learns == ("transformer.h.1.mlp.c_proj.weight",)
    second = {"Llama": "mlp.down_proj", "OPT": "fc2", "GPTNeoX": "mlp.dense_4h_to_h"}
    for name, part in second.items():
        [last] = open_causal(random_model(name)).learns
        assert last.endswith(f".1.{part}.weight")
    chosen = open_causal(model, learns=("lm_head", "norm", "bias")).learns
    assert {
        "transformer.wte.weight",
        "transformer.h.0.ln_1.weight",
        "transformer.h.1.mlp.c_fc.bias",
    } <= set(chosen)
    assert "transformer.h.0.mlp.c_fc.weight" not in chosen
    assert open_causal(model, learns=("h.1.",)).describe()["learning_parameters"] < 20_000
    with pytest.raises(UserError, match="'nothing'"):
        open_causal(model, learns=("nothing",))


def test_positions_that_change_with_the_length_limit_the_window() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
    model = random_model("Phi3", rope_parameters=rope, original_max_position_embeddings=16)
    assert open_causal(model).context == 16
    with pytest.raises(
        UserError, match=r"context = 17 must lie between 2 and the model's 16 tokens, above which"
    ):
        open_causal(model, context=17)
    with pytest.raises(UserError, match="at most the 16 tokens"):
        open_causal(model).mean_squares(np.arange(240) % 20, 17)


def test_pieces_that_the_model_has_no_row_for_are_refused_where_they_occur() -> None:
    pieces = copy.deepcopy(tokenizer())
    pieces.add_tokens([f"[{index}]" for index in range(70)])
    reader = hebblm.load((random_model("Llama"), pieces)).reader("mixture")
    assert reader.read("the cat [0]").nll.isfinite().all()
    with pytest.raises(
        UserError,
        match=r"'\[69\]' in the text is piece \d+ of the tokenizer, and the model has 70 rows",
    ):
        reader.read("the cat [69]")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Llama", "0"),
        ("Llama", -1),
        *((name, "ffn-input") for name in ("Llama", "GPT2", "OPT", "GPTNeoX")),
    ],
)
@torch.no_grad()
def test_memories_keep_another_layer_s_states(name: str, key: str | int) -> None:
    lm = opened(name, key=key)
    model = lm.model
    assert isinstance(model, HuggingFaceModel)
    plain = opened(name)
    unadapted, expected = (one.reader("base", update_every=5).read(TEXT) for one in (lm, plain))
    torch.testing.assert_close(unadapted.nll, expected.nll)
    unlike, like = (one.reader("knn", update_every=5).read(TEXT) for one in (lm, plain))
    assert (unlike.nll - like.nll).abs().max() > 1e-3
    ids = torch.tensor(tokenizer()(TEXT, add_special_tokens=False)["input_ids"])[:CONTEXT]
    out = model.model(ids[None], output_hidden_states=True)
    found = model.states(ids[None], None, {})[0][..., -model.key_width :]
    if key == "0":
        torch.testing.assert_close(found, out.hidden_states[1])
    [segment] = model.segments(ids.numpy()[:STRIDE])
    torch.testing.assert_close(segment.keys, found[0, : STRIDE - 1])
    assert model.sha256 != plain.model.sha256
    with pytest.raises(UserError, match="key=last"):
        lm.reader("mixture+mbpa").read(TEXT)
    with pytest.raises(UserError, match="'9'"):
        opened(name, key="9")


def test_defaults_of_transformers_give_way_to_what_the_user_set() -> None:
    lm = opened("Llama")
    plain = {"dynamic.rule": "sgd", "dynamic.lr": 0.1}
    decays = [
        lm.reader("dynamic", settings={**plain, **more}, update_every=5).read(TEXT).nll
        for more in ({}, {"dynamic.decay": TRANSFORMERS["dynamic.decay"]}, {"dynamic.decay": 0.5})
    ]
    assert torch.equal(decays[0], decays[1])
    assert not torch.equal(decays[0], decays[2])
