from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hebblm
from hebblm.api.request import Request
from hebblm.errors import UserError
from hebblm.io.installation import models_path


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (hebblm.evaluate, {"methods": ["heb"]}, "did you mean hebb"),
        (hebblm.evaluate, {"settings": {"hebb.bta": 1}}, "did you mean hebb.beta"),
        (hebblm.evaluate, {"max_token": 3}, "unknown option 'max_token'; did you mean max_tokens?"),
        (hebblm.evaluate, {"log_samples": True}, "log_samples needs output_path"),
        (
            hebblm.evaluate,
            {"log_samples": True, "command": "hebblm-eval"},
            "--log-samples needs --output-path",
        ),
        (hebblm.evaluate, {"log_neighbors": 3}, "needs log_samples"),
        (hebblm.evaluate, {"intra_domain": None}, "name one scenario: cross_domain A-to-B"),
        (hebblm.evaluate, {"intra_domain": None, "target": 3}, "target = 3 is not a text"),
        (
            hebblm.evaluate,
            {"intra_domain": None, "target": ["a", 3]},
            "text 2 of target is 3, not a string",
        ),
        (
            hebblm.evaluate,
            {"intra_domain": None, "target": ["a\ud800"]},
            "target holds .*, half of a character",
        ),
        (hebblm.evaluate, {"intra_domain": None, "target": []}, "target holds no text"),
        (
            hebblm.evaluate,
            {"intra_domain": None, "target": "a text\n" * 900},
            r"is a text, .*; give it in a list: \[",
        ),
        (
            hebblm.evaluate,
            {"max_tokens": "1000"},
            "max_tokens = '1000' must be at least 1, and a whole number",
        ),
        (hebblm.evaluate, {"seed": None}, "seed = None must be at least 0"),
        (hebblm.evaluate, {"methods": "mixtur"}, "unknown method 'mixtur'; did you mean mixture"),
        (hebblm.evaluate, {"methods": [None]}, "methods = None is not a string"),
        (hebblm.evaluate, {"model": (1, 2)}, "a tuple is not a model; .*hebblm.load"),
        (
            hebblm.evaluate,
            {"methods": "lstm,mbpa", "settings": {"mbpa.lr": 2}},
            "mbpa.lr is for gradient descent",
        ),
        (
            hebblm.tune,
            {"settings": {"mbpa.lr_units": "guarded"}},
            "mbpa.lr_units is for gradient descent",
        ),
        (hebblm.evaluate, {"forgetting": 10}, "ptb is the only one"),
        (
            hebblm.evaluate,
            {"memory_content": "tests"},
            "memory_content = 'tests'.*did you mean test",
        ),
        (
            hebblm.evaluate,
            {"memory_scope": "Stream", "streams": 2},
            "memory_scope = 'Stream' is unknown",
        ),
        (hebblm.tune, {"split": "test"}, "tuning must not read the split 'test'"),
        (hebblm.tune, {"vocabulary": "open"}, "'open' cannot be tuned"),
        (hebblm.tune, {"methods": ["hebb-v1"]}, "no values of its own"),
    ],
)
def test_a_mistake_is_told_before_anything_is_opened(
    function: Callable[..., Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        function(**{"intra_domain": "ptb", **options})


def test_the_tuning_that_is_suggested_can_be_run() -> None:
    request = Request.of(
        None, "ptb", "tuned", source="pydoc", vocabulary="open", unk_share=0.3, k=50
    )
    assert request.note.endswith("own: hebblm-tune --source pydoc --target ptb --k 50")


def test_a_folder_is_scored_by_document_and_a_result_that_will_be_replaced_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / "texts" / name).write_text("Call the function with two arguments .\n" * 10)
    options: dict[str, Any] = {
        "memory_content": "test",
        "device": "cpu",
        "output_path": tmp_path / "out",
    }
    target = f"text:{tmp_path / 'texts'}"
    result = hebblm.evaluate("tiny-pydoc-raw", target, ["lstm"], max_tokens=100, **options)
    assert [(each["name"], each["tokens"]) for each in result.extra["documents"]] == [
        ("a.txt", 80),
        ("b.txt", 20),
    ]
    assert "is replaced when this run ends" not in capsys.readouterr().err
    hebblm.evaluate("tiny-pydoc-raw", target, ["lstm"], max_tokens=100, **options)
    assert (
        "out holds a finished result; it is replaced when this run ends" in capsys.readouterr().err
    )


def test_values_that_are_set_for_nothing_are_told_and_methods_are_named_as_on_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {"hebb.beta": 0.4, "cache.theta": 2.0}
    result = hebblm.evaluate(
        "tiny-pydoc-raw", Path(__file__), "base, cache", settings=values, max_tokens=50
    )
    assert list(result.methods) == ["lstm", "cache"]
    assert "no effect, because none of lstm, cache reads it: hebb.beta\n" in capsys.readouterr().err


def test_a_page_of_ones_own_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The function returns a list .\n")
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(UserError, match=r"report\.md does not belong to a result"):
        hebblm.evaluate("tiny-pydoc-raw", tmp_path / "text.txt", ["lstm"], output_path=tmp_path)
    assert (tmp_path / "report.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["tiny-pydoc-raw", "copy"])
def test_a_model_is_read_where_it_was_loaded_and_told_of_by_its_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "notes.txt").write_text("Call the function with two arguments .\n" * 10)
    shutil.copytree(models_path() / "tiny-pydoc-raw", tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    lm = hebblm.load(name, device="cpu")
    monkeypatch.chdir(tmp_path / "elsewhere")
    hebblm.evaluate(
        lm, str(tmp_path / "notes.txt"), "lstm", hyperparameters="tuned", max_tokens=np.int64(40)
    )
    told = capsys.readouterr().err
    assert (
        f"own: hebblm-tune --checkpoint {'' if name != 'copy' else f'{tmp_path}/'}{name} --text"
        in told
    )
    assert "--device cpu" in told


@pytest.mark.parametrize("name", ["mbpa", "mixture+hebb"])
def test_methods_that_adapt_the_head_are_refused_another_layers_keys_before_anything_is_loaded(
    name: str,
) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(name)} adapts the output layer .*key last"):
        hebblm.evaluate("llama-wt2-small", "ptb", ["knn", name], key="ffn-input")
