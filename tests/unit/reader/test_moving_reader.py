"""A reader by the methods of dynamic evaluation: the numbers of ``hebblm-eval``, and weights of its
own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import hebblm
from awd_lstm import AWDLSTM, AWDLSTMConfig, save_checkpoint
from hebblm.adapt.methods import DYNAMIC_METHODS
from hebblm.errors import UserError

from ...support import toy
from ..models.architectures import random_model, tokenizer

SETTINGS = {"dynamic.segment": 7, "dynamic.statistics": 200, "dynamic.lr": 0.01}
FAST = {**SETTINGS, "dynamic.rule": "sgd", "dynamic.lr": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint with its corpus beside it."""
    root = tmp_path_factory.mktemp("moving")
    prepared = toy.corpus(root / "corpus")
    torch.manual_seed(0)
    save_checkpoint(
        root / "model",
        AWDLSTM(AWDLSTMConfig(len(prepared.dictionary), 12, 16, 2)),
        dictionary_sha256=prepared.meta.dictionary_hash,
        training={"corpus": {"name": str(root / "corpus"), "normalization": "raw"}},
    )
    return root / "model"


@pytest.fixture
def lm(folder: Path) -> hebblm.LanguageModel:
    return hebblm.load(folder, device="cpu")


def words(lm: hebblm.LanguageModel, count: int, seed: int = 0) -> str:
    """Return lines of words that the model knows."""
    vocabulary = lm.vocabulary
    known = [vocabulary[i] for i in range(vocabulary.known) if not vocabulary[i].startswith("<")]
    places = torch.randint(
        len(known), (count,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    lines = [" ".join(known[i] for i in places[at : at + 9]) for at in range(0, count, 9)]
    return "".join(f"{line}\n" for line in lines)


def same_as_evaluated(
    lm: hebblm.LanguageModel,
    text: str,
    where: Path,
    settings: dict[str, object],
    methods: list[str],
) -> None:
    """Compare what readers and :func:`hebblm.evaluate` charge for a text, token by token."""
    (where / "notes.txt").write_text(text)
    hebblm.evaluate(
        lm, where / "notes.txt", ["lstm", *methods], settings=settings, memory_content="test",
        device="cpu",
        update_every=SETTINGS["dynamic.segment"], output_path=where / "out", log_samples=True,
    )  # fmt: skip
    expected = pq.read_table(where / "out" / "tokens.parquet").to_pydict()
    plain = torch.tensor(expected["nll_lstm"])
    for method in methods:
        scores = lm.reader(method, settings=settings, update_every=7).read(text)
        torch.testing.assert_close(
            scores.nll, torch.tensor(expected[f"nll_{method}"]), atol=2e-5, rtol=1e-5
        )
        assert scores.unadapted is not None
        torch.testing.assert_close(scores.unadapted.nll, plain, atol=2e-5, rtol=1e-5)
        assert (scores.nll - plain).abs().max() > 1e-2


@pytest.mark.parametrize("rule", ["rms", "sgd", "stream"])
def test_its_losses_are_those_of_the_evaluation(
    lm: hebblm.LanguageModel, tmp_path: Path, rule: str
) -> None:
    settings = FAST if rule == "sgd" else {**SETTINGS, "dynamic.rule": rule}
    same_as_evaluated(lm, words(lm, 90), tmp_path, settings, list(DYNAMIC_METHODS))


def test_a_model_of_transformers_has_them_too(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    lm = hebblm.load((random_model("Llama"), tokenizer()), device="cpu", context=16, stride=6)
    text = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n" * 2
    settings = {**FAST, "dynamic.lr": 0.1}
    reader = lm.reader("dynamic", settings=settings, update_every=7)
    before = {name: weight.clone() for name, weight in lm.model.parameters.items()}
    scores = reader.read(text)
    assert len(scores) > 2 * 16
    assert all(torch.equal(weight, before[name]) for name, weight in lm.model.parameters.items())
    (tmp_path / "notes.txt").write_text(text)
    result = hebblm.evaluate(
        lm,
        tmp_path / "notes.txt",
        ["dynamic"],
        settings=settings,
        memory_content="test",
        update_every=7,
    )
    total = float(scores.nll.double().sum())
    assert scores.unadapted is not None
    assert total < float(scores.unadapted.nll.double().sum()) - 1
    found = result.methods["dynamic"]
    assert found.nll * result.scenario.tokens == pytest.approx(total, rel=1e-5)
    reader.save(tmp_path / "known")
    again = lm.reader("dynamic", memory=tmp_path / "known", settings=settings)
    first, second = (one.suggest("the", 3, budget=8) for one in (reader, again))
    assert first == second
    assert torch.equal(
        reader.read("the cat in the fog.\n" * 6).nll, again.read("the cat in the fog.\n" * 6).nll
    )
    shorter = hebblm.load((lm.model.model, tokenizer()), device="cpu", context=8)
    for method in ("dynamic", "mixture"):
        opened = shorter.reader(method, memory=tmp_path / "known", settings=settings)
        assert opened.read("the cat in the fog.\n" * 6).nll.isfinite().all()


@pytest.mark.parametrize("method", ["dynamic", "dynamic+best"])
def test_the_model_stays_as_trained_and_a_saved_reader_goes_on(
    lm: hebblm.LanguageModel, method: str, tmp_path: Path
) -> None:
    text, rest = words(lm, 60) + "frobnitz quux frobnitz\n", words(lm, 30, 1) + "frobnitz\n"
    before = {name: weight.clone() for name, weight in lm.model.model.state_dict().items()}
    plain = lm.reader("lstm", update_every=7)
    plain.read(text)
    asked = plain.suggest("frobnitz", 3)[0]
    reader = lm.reader(method, settings=SETTINGS, update_every=7)
    reader.read(text)
    reader.save(tmp_path / "known")
    best = {item.word: item for item in reader.suggest("frobnitz", len(lm.vocabulary))}
    assert best[asked.word].unadapted == pytest.approx(asked.unadapted, rel=1e-5)
    assert reader.generate("frobnitz", max_new_tokens=3) == reader.generate(
        "frobnitz", max_new_tokens=3
    )
    again = lm.reader(method, memory=tmp_path / "known", settings=SETTINGS)
    assert again.suggest("frobnitz", 3) == reader.suggest("frobnitz", 3)
    fixed = lm.reader("mixture", memory=tmp_path / "known")
    torch.testing.assert_close(
        fixed.read(rest).unadapted.nll, plain.read(rest).nll, msg="place as trained"
    )
    first, second = reader.read(rest), again.read(rest)
    assert torch.equal(first.nll, second.nll)
    assert torch.equal(first.unadapted.nll, second.unadapted.nll)
    assert all(
        torch.equal(weight, before[name]) for name, weight in lm.model.model.state_dict().items()
    )
    plain.save(tmp_path / "plain")
    moved = lm.reader("dynamic", memory=tmp_path / "plain", settings=SETTINGS).read(rest)
    last = plain.read(rest)
    torch.testing.assert_close(moved.unadapted.nll, last.nll)
    torch.testing.assert_close(moved.nll[:7], last.nll[:7])
    assert (moved.nll - last.nll)[7:].abs().max() > 1e-3


def test_what_is_not_learned_moves_no_weight(lm: hebblm.LanguageModel) -> None:
    reader = lm.reader("dynamic", settings=FAST)
    scores = reader.read(words(lm, 60), learn=False)
    assert scores.unadapted is not None
    torch.testing.assert_close(scores.nll, scores.unadapted.nll, atol=1e-5, rtol=1e-5)


def test_a_model_of_transformers_learns_at_a_rate_measured_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("transformers")
    llama = hebblm.load("llama-wt2-small", device="cpu")
    text = "The village of Frobnitz lies on the river Quux .\n" * 12
    ids = llama.vocabulary.encode("The village lies on the river , south of the town .\n" * 12).ids
    monkeypatch.setattr(hebblm.LanguageModel, "training_ids", lambda _: np.array(ids))
    scores = llama.reader("dynamic").read(text)
    assert scores.unadapted is not None
    assert scores.nll.isfinite().all()
    assert scores.nll.mean() < scores.unadapted.nll.mean() - 0.1
    fixed = llama.reader("dynamic", settings={"dynamic.lr": 0.0, "dynamic.decay": 0.0}).read(text)
    torch.testing.assert_close(fixed.nll, scores.unadapted.nll)


def test_a_held_model_is_used_where_it_is_and_one_name_is_no_row_of_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("transformers")
    held = (random_model("Llama"), tokenizer())
    named, listed = (hebblm.load(held, learns=asked).model.learns for asked in ("norm", ["norm"]))
    assert named == listed
    monkeypatch.setattr("hebblm.api.language_model.pick_device", torch.device)
    with pytest.raises(UserError, match="device = meta is not cpu, where the model is"):
        hebblm.load(held, device="meta")


def test_the_rms_rule_asks_for_the_training_text(lm: hebblm.LanguageModel) -> None:
    rms, stream = ({"dynamic.rule": predictor} for predictor in ("rms", "stream"))
    with pytest.raises(UserError, match=r"it is not known; dynamic\.rule=stream does without it"):
        hebblm.Reader(lm.model, lm.vocabulary.fresh(), "dynamic", settings=rms)
    held = hebblm.LanguageModel("held", lm.model, lm.vocabulary, None)
    with pytest.raises(
        UserError, match=r"held.* is needed, but .*; dynamic\.rule=stream does without it"
    ):
        held.reader("dynamic", settings=rms)
    assert held.reader("dynamic", settings=stream).read(words(lm, 20)).nll.isfinite().all()


def test_without_a_training_text_it_finds_its_rate_on_the_stream(
    lm: hebblm.LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, rest = words(lm, 40) * 12, words(lm, 60, 1)
    held = hebblm.LanguageModel("held", lm.model, lm.vocabulary, None)
    reader = held.reader("dynamic", update_every=7)
    assert "finds its rate on the text that it reads" in capsys.readouterr().err
    scores, plain = reader.read(text), held.reader("lstm").read(text)
    assert scores.unadapted is not None
    torch.testing.assert_close(scores.unadapted.nll, plain.nll, atol=1e-5, rtol=1e-5)
    assert scores.nll.mean() < plain.nll.mean() - 0.01
    reader.save(tmp_path / "known")
    again = held.reader("dynamic", memory=tmp_path / "known")
    assert torch.equal(reader.read(rest).nll, again.read(rest).nll)


def test_weights_that_are_not_finite_are_not_saved(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = lm.reader("dynamic", settings=FAST)
    reader.read(words(lm, 20))
    next(iter(reader.session.base.weights().values())).data.flatten()[0] = float("inf")
    with pytest.raises(UserError, match="what dynamic learned is no longer finite"):
        reader.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
