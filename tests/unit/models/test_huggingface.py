"""Every architecture through the front door: what the reader predicts is what the model predicts."""

from __future__ import annotations

import copy
import io
import json
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.errors import UserError
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.models.huggingface.open import open_causal

from .architectures import ARCHITECTURES, random_model, tokenizer

transformers = pytest.importorskip("transformers")

TEXT = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n"
CONTEXT, STRIDE = 16, 6


def opened(name: str, **options: Any) -> hebblm.LanguageModel:
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    return hebblm.load((random_model(name), tokenizer()), **{"context": CONTEXT, "stride": STRIDE, **options})


def windows(model: Any, ids: Tensor) -> Tensor:
    """Return log-probabilities (T, V) after each of the ids (T,), from windows read whole."""
    parts, done = [model(ids[None, :CONTEXT]).logits[0]], CONTEXT
    while done < len(ids):
        begin = done - (CONTEXT - STRIDE)
        parts.append(model(ids[None, begin : done + STRIDE]).logits[0, CONTEXT - STRIDE :])
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
    words = scores.by_word()
    assert words.tokens == tuple(word for line in TEXT.splitlines() for word in (*line.split(), "\n"))
    assert float(words.nll.sum()) == pytest.approx(float(scores.nll.sum()), rel=1e-6)
    assert "".join(scores.tokens) == TEXT
    bits = float(scores.nll.double().sum()) / math.log(2)
    assert scores.bits_per_byte == pytest.approx(bits / len(TEXT.encode()))
    assert words.unadapted is not None
    assert scores.word_perplexity == words.perplexity != scores.perplexity


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


def test_what_cannot_be_adapted_is_refused() -> None:
    bert = transformers.BertConfig(
        vocab_size=70, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48
    )
    both_ways = transformers.BertLMHeadModel(bert)
    with pytest.raises(UserError, match="no causal language model"):
        hebblm.load((both_ways, tokenizer()))
    odd = random_model("Llama")
    plain = odd.forward

    def squared(*args: Any, **options: Any) -> Any:
        out = plain(*args, **options)
        out.logits = out.logits.square()
        return out

    odd.forward = squared
    with pytest.raises(UserError, match="not its output layer's"):
        hebblm.load((odd, tokenizer()))
    small = transformers.LlamaConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48
    )
    with pytest.raises(UserError, match="another model"):
        hebblm.load((transformers.LlamaForCausalLM(small), tokenizer()))
    with pytest.raises(UserError, match="no language model"):
        hebblm.load((torch.nn.Linear(2, 2), tokenizer()))
    with pytest.raises(UserError, match="fast tokenizer"):
        hebblm.load((random_model("Llama"), object()))


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
    with pytest.raises(UserError, match=r"hebblm\[hf\]"):
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
