# ruff: noqa: E402  (what follows importorskip needs what it asks for)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from hebblm.errors import UserError
from hebblm.integrations.lm_eval import AdaptedLM

from ..models.architectures import random_model, tokenizer

TEXTS = [
    "the cat in a hat.\n",
    "The fin the the Abc in the fog, a fan.\n",
    "a cat, a cat, a cat in the fog.\n",
]
TASK = """
task: fog
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{target}}}}"
{more}
"""
CHOICES = """doc_to_choice: "{{choices}}"
metric_list: [{metric: acc}]"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    random_model("Llama").save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, given, index) for index, given in enumerate(arguments)]


def test_the_unadapted_method_is_the_harness_own_model(folder: Path) -> None:
    theirs = HFLM(str(folder), device="cpu", dtype="float32", batch_size=1)
    ours = AdaptedLM(str(folder), method="lstm", device="cpu", dtype="float32")
    pairs = requests("loglikelihood", ("the cat", " in a hat."), ("", "The fin"), ("a fan. ", "the fog"))
    for (mine, greedy), (other, chosen) in zip(ours.loglikelihood(pairs), theirs.loglikelihood(pairs), strict=True):
        assert mine == pytest.approx(other, abs=1e-4)
        assert greedy == chosen
    whole = requests("loglikelihood_rolling", *[(text,) for text in TEXTS])
    assert ours.loglikelihood_rolling(whole) == pytest.approx(theirs.loglikelihood_rolling(whole), abs=1e-4)


def test_documents_are_learned_from_in_order_only_where_that_is_asked_for(folder: Path) -> None:
    whole = requests("loglikelihood_rolling", *[(text,) for text in [*TEXTS, *TEXTS]])
    plain = AdaptedLM(str(folder), method="mixture").loglikelihood_rolling(whole)
    assert plain[:3] == pytest.approx(plain[3:], abs=1e-5)
    learning = AdaptedLM(str(folder), method="mixture", learn=True)
    found = learning.loglikelihood_rolling(whole)
    reader = hebblm.load(folder).reader("mixture")
    for text, score in zip([*TEXTS, *TEXTS], found, strict=True):
        reader.begin()
        assert -float(reader.read(text).nll.double().sum()) == pytest.approx(score, abs=1e-4)
    assert found[3:] != pytest.approx(plain[3:], abs=1e-2)


def test_scores_that_the_harness_keeps_go_with_no_learning(folder: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "scores.db")
    whole = requests("loglikelihood_rolling", (TEXTS[0],))
    plain = AdaptedLM(str(folder), method="mixture")
    assert CachingLM(plain, store).loglikelihood_rolling(whole) == plain.loglikelihood_rolling(whole)
    with pytest.raises(UserError, match=r"learn=True.*--use_cache"):
        CachingLM(AdaptedLM(str(folder), method="mixture", learn=True), store)


def test_a_memory_on_disk_is_used_and_an_answer_ends_where_the_task_says(folder: Path, tmp_path: Path) -> None:
    reader = hebblm.load(folder).reader("mixture")
    reader.read("".join(TEXTS))
    reader.save(tmp_path / "known")
    adapted = AdaptedLM(str(folder), method="mixture", memory=str(tmp_path / "known"))
    pair = requests("loglikelihood", ("the cat", " in a hat."))
    assert adapted.loglikelihood(pair) != AdaptedLM(str(folder), method="mixture").loglikelihood(pair)
    ask = requests("generate_until", ("a cat, a", {"until": [], "max_gen_toks": 6}))
    (text,) = adapted.generate_until(ask)
    assert len(text) > 1
    middle = text[len(text) // 2]
    ask = requests("generate_until", ("a cat, a", {"until": [middle], "max_gen_toks": 6}))
    assert adapted.generate_until(ask) == [text[: text.index(middle)]]


@pytest.mark.slow
def test_a_task_of_ones_own_runs_to_its_end(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    data = tmp_path / "data.json"
    rows = [{"context": "the cat", "target": index % 2, "choices": [" in a hat.", " Abc fog"]} for index in range(4)]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = tmp_path / "fog.yaml"
    task.write_text(TASK.format(data=data, kind="multiple_choice", more=CHOICES), encoding="utf-8")
    torch.manual_seed(0)
    found = lm_eval.simple_evaluate(
        model="hebblm",
        model_args=f"pretrained={folder},method=lstm",
        tasks=["fog"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        device="cpu",
    )
    own = lm_eval.simple_evaluate(
        model="hf",
        model_args=f"pretrained={folder},dtype=float32",
        tasks=["fog"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        device="cpu",
    )
    assert found["results"]["fog"]["acc,none"] == own["results"]["fog"]["acc,none"] == 0.5
