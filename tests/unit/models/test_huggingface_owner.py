"""A model that is somebody else's too: it stays as it is, is used in threads, changes, is
copied.
"""

from __future__ import annotations

import copy
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.errors import UserError

from .architectures import TEXT, opened, random_model, tokenizer

pytest.importorskip("transformers")


def test_the_caller_s_model_stays_as_it_is_and_its_losses_add_up_by_word() -> None:
    model = random_model("GPT2").train()
    before = copy.deepcopy(model.state_dict())
    lm = hebblm.load((model, tokenizer()))
    scores = lm.reader("mbpa").read(TEXT)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    words = scores.by_word()
    assert words.tokens == tuple(
        word for line in TEXT.splitlines() for word in (*line.split(), "\n")
    )
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
    expected = [
        lm.reader(method, settings=settings, update_every=5).read(TEXT).nll for method in methods
    ]
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


@pytest.mark.parametrize("way", ["one number", "data", "fused", "replaced"])
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
    elif way == "data":
        weight.data = 2 * weight.data
    elif way == "fused":  # counts no change
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model(torch.arange(3, 13)[None], labels=torch.arange(3, 13)[None]).loss.backward()
        optimizer.step()
    else:
        model.resize_token_embeddings(80)
    for call in (lambda: lm.reader("mixture"), lambda: reader.save(tmp_path / "after")):
        with pytest.raises(
            UserError, match=r"the weights changed since hebblm\.load; load the model again"
        ):
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
    assert torch.equal(
        compiled.reader("mixture").read(TEXT).nll, plain.reader("mixture").read(TEXT).nll
    )
