# ruff: noqa: E402  (what follows importorskip needs what it asks for)
from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers.processors import TemplateProcessing

from hebblm.errors import UserError
from hebblm.integrations.lm_eval import MAX_CONTEXT_TOKENS, AdaptedLM
from hebblm.models.base import device_of

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


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose tokenizer puts a special token before each text, and has a chat
    template.
    """
    path = tmp_path_factory.mktemp("beginning")
    random_model("Llama").save_pretrained(path)
    special = copy.deepcopy(tokenizer())
    special.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    special.chat_template = (
        "<s>{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% "
        "endif %}"
        "{{ m.content }}. {% endfor %}{% if add_generation_prompt %}A. {% endif %}"
    )
    special.save_pretrained(path)
    return path


def long(path: Path, positions: int) -> Path:
    """Write a model that reads so many tokens at once."""
    model = random_model("Llama")
    model.config.max_position_embeddings = positions
    model.save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def test_the_harness_keeps_all_of_its_own_models() -> None:
    """A new process, where nothing asked the harness for a model before."""
    listed = "print(*sorted(set(MODEL_REGISTRY.keys())))"
    plain = f"import lm_eval.models\nfrom lm_eval.api.registry import MODEL_REGISTRY\n{listed}"
    ours = (
        "import hebblm.integrations.lm_eval\nfrom lm_eval.api.registry import MODEL_REGISTRY, "
        f"get_model\n{listed}"
    )
    ours += "\nprint(get_model('hf').__name__, get_model('hebblm').__name__)"
    own, both = (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for code in (plain, ours)
    )
    assert set(both[0].split()) == {*own[0].split(), "hebblm"}
    assert {"hf", "dummy", "local-completions"} < set(both[0].split())
    assert both[1] == "HFLM AdaptedLM"


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, given, index) for index, given in enumerate(arguments)]


@pytest.mark.parametrize("name", ["folder", "beginning"])
def test_the_unadapted_method_is_the_harness_own_model(
    name: str, request: pytest.FixtureRequest
) -> None:
    folder = str(request.getfixturevalue(name))
    theirs = HFLM(folder, device="cpu", dtype="float32", batch_size=1)
    ours = AdaptedLM(folder, method="lstm", device="cpu", dtype="float32")
    assert (theirs.tok_encode("the")[0] == theirs.prefix_token_id) == (name == "beginning")
    given = [
        ("the cat", " in a hat."),
        ("", "The fin"),
        ("a fan. ", "the fog"),
        ("<s>the cat", " in a hat."),
    ]
    pairs = requests("loglikelihood", *given)
    for (mine, greedy), (other, chosen) in zip(
        ours.loglikelihood(pairs), theirs.loglikelihood(pairs), strict=True
    ):
        assert mine == pytest.approx(other, abs=1e-4)
        assert greedy == chosen
    whole = requests("loglikelihood_rolling", *[(text,) for text in [*TEXTS, "<s>a fan"]])
    assert ours.loglikelihood_rolling(whole) == pytest.approx(
        theirs.loglikelihood_rolling(whole), abs=1e-4
    )
    asked = [
        (prompt, {"until": ["Q"], "max_gen_toks": 8})
        for prompt in ("the cat in", "a fan", "<s>the fog")
    ]
    answers = requests("generate_until", *asked)
    assert ours.generate_until(answers) == theirs.generate_until(copy.deepcopy(answers))


def test_a_special_token_before_a_document_is_not_learned_from(beginning: Path) -> None:
    learning = AdaptedLM(str(beginning), method="mixture", learn=True)
    learning.loglikelihood_rolling(requests("loglikelihood_rolling", (TEXTS[0],)))
    assert len(learning.reader) == len(learning.tok_encode(TEXTS[0], add_special_tokens=False))


def test_a_prompt_of_any_length_that_the_model_allows_is_read_whole(tmp_path: Path) -> None:
    folder = str(long(tmp_path, 1500))
    pair = requests("loglikelihood", ("the cat in a hat, a fan. " * 70, "the fog"))
    ours, theirs = (
        AdaptedLM(folder, method="lstm", device="cpu", dtype="float32"),
        HFLM(folder, device="cpu"),
    )
    assert 1024 < len(ours.tok_encode(pair[0].args[0])) < 1500
    assert ours.loglikelihood(pair)[0][0] == pytest.approx(
        theirs.loglikelihood(pair)[0][0], abs=1e-4
    )


def test_the_window_is_bounded_and_options_of_loading_are_passed_on(tmp_path: Path) -> None:
    folder = str(long(tmp_path, 2 * MAX_CONTEXT_TOKENS))
    model = AdaptedLM(folder, device_map="cpu").reader.model
    assert (model.context, model.stride) == (MAX_CONTEXT_TOKENS, MAX_CONTEXT_TOKENS // 2)
    model = AdaptedLM(folder, stride=100).reader.model
    assert (model.context, model.stride) == (MAX_CONTEXT_TOKENS, 100)
    model = AdaptedLM(folder, context=32, stride=8, key="ffn-input", method="mixture").reader.model
    assert (model.context, model.stride, model.keyed) == (32, 8, True)


def test_a_chat_template_is_the_harness_own(beginning: Path, folder: Path) -> None:
    ours, theirs = AdaptedLM(str(beginning)), HFLM(str(beginning), device="cpu")
    talk = [{"role": "system", "content": "a hat"}, {"role": "user", "content": "the cat"}]
    assert ours.tokenizer_name == theirs.tokenizer_name
    assert ours.chat_template(True) == theirs.chat_template(True)
    for prompted in (True, False):
        text = ours.apply_chat_template(talk, add_generation_prompt=prompted)
        assert text == theirs.apply_chat_template(talk, add_generation_prompt=prompted)
        assert ours.tok_encode(text) == theirs.tok_encode(text)
    for plain in (str(folder), "tiny-pydoc-raw"):
        with pytest.raises(UserError, match=r"no chat template.*--apply_chat_template"):
            AdaptedLM(plain).apply_chat_template(talk)


def test_an_answer_ends_where_the_models_configuration_says(folder: Path) -> None:
    ours = AdaptedLM(str(folder), method="lstm")
    ask = requests("generate_until", ("a cat, a", {"until": [], "max_gen_toks": 6}))
    (text,) = ours.generate_until(ask)
    middle = ours.tok_encode(text)[2]
    ours.reader.model.model.generation_config.eos_token_id = [2, middle]
    assert ours.generate_until(ask) == [text[: text.index(ours.tokenizer.decode(middle))]]


def test_a_model_of_words_answers_what_it_scores_best() -> None:
    ours = AdaptedLM("tiny-pydoc-raw", method="mixture")
    whole = requests("loglikelihood_rolling", ("return the number of items",))
    assert ours.loglikelihood_rolling(whole)[0] < 0
    (answer,) = ours.generate_until(requests("generate_until", ("return the", {"max_gen_toks": 1})))
    (_, greedy), *_ = ours.loglikelihood(requests("loglikelihood", ("return the", f" {answer}")))
    assert answer
    assert greedy


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="the harness's default device is there")
def test_the_harness_default_device_is_the_one_there_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        device_of(
            AdaptedLM(str(folder), method="lstm", device=EvaluatorConfig().device).reader.model
        ).type
        == "cpu"
    )
    assert f"torch finds no CUDA device; {folder} is read on the CPU" in capsys.readouterr().err
    with pytest.raises(UserError, match="'cuda' was asked for"):
        AdaptedLM(str(folder), method="lstm", device="cuda")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("pretrained=tiny-pydoc-raw,method=mxture", "did you mean mixture"),
        ("method=lstm", "no model is named; name one with --model_args pretrained=NAME"),
    ],
)
def test_bad_arguments_are_refused(arguments: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        AdaptedLM.create_from_arg_string(arguments)


@pytest.mark.slow
def test_a_bad_argument_ends_the_command_with_one_line(tmp_path: Path) -> None:
    task = TASK.format(data=tmp_path / "data.json", kind="multiple_choice", more=CHOICES)
    (tmp_path / "fog.yaml").write_text(task, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "hebblm.integrations.lm_eval",
        "--model",
        "hebblm",
        "--model_args",
        "pretrained=tiny-pydc",
    ]
    ended = subprocess.run(
        [*command, "--tasks", "fog", "--include_path", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("hebblm: error: ")
    assert "did you mean tiny-pydoc-raw?" in last


def test_scores_that_the_harness_keeps_go_with_no_learning(folder: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "scores.db")
    whole = requests("loglikelihood_rolling", (TEXTS[0],))
    plain = AdaptedLM(str(folder), method="mixture")
    assert CachingLM(plain, store).loglikelihood_rolling(whole) == plain.loglikelihood_rolling(
        whole
    )
    with pytest.raises(UserError, match=r"learn=True.*--use_cache"):
        CachingLM(AdaptedLM(str(folder), method="mixture", learn=True), store)


def test_a_memory_on_disk_is_used_and_an_answer_ends_where_the_task_says(
    folder: Path, tmp_path: Path
) -> None:
    reader = hebblm.load(folder).reader("mixture")
    reader.read("".join(TEXTS))
    reader.save(tmp_path / "known")
    adapted = AdaptedLM(str(folder), method="mixture", memory=str(tmp_path / "known"))
    pair = requests("loglikelihood", ("the cat", " in a hat."))
    assert adapted.loglikelihood(pair) != AdaptedLM(str(folder), method="mixture").loglikelihood(
        pair
    )
    ask = requests("generate_until", ("a cat, a", {"until": [], "max_gen_toks": 6}))
    (text,) = adapted.generate_until(ask)
    assert len(text) > 1
    middle = text[len(text) // 2]
    ask = requests("generate_until", ("a cat, a", {"until": [middle], "max_gen_toks": 6}))
    assert adapted.generate_until(ask) == [text[: text.index(middle)]]


@pytest.mark.slow
def test_a_task_of_ones_own_runs_to_its_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    data = tmp_path / "data.json"
    rows = [
        {"context": "the cat", "target": index % 2, "choices": [" in a hat.", " Abc fog"]}
        for index in range(4)
    ]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = tmp_path / "fog.yaml"
    task.write_text(TASK.format(data=data, kind="multiple_choice", more=CHOICES), encoding="utf-8")
    torch.manual_seed(0)
    for model, options in (("hebblm", "method=lstm"), ("hf", "dtype=float32")):
        found = lm_eval.simple_evaluate(
            model=model,
            model_args=f"pretrained={folder},{options}",
            tasks=["fog"],
            task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
            device="cpu",
        )
        assert found["results"]["fog"]["acc,none"] == 0.5
