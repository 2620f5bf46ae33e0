"""Options of an evaluation: one dataclass for Python, the command line and the key of a run."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.cli.eval import EvalConfig
from hebblm.errors import UserError
from hebblm.evaluation.accuracy import AccuracyLog
from hebblm.evaluation.observers import Notes
from hebblm.evaluation.observing import Observers
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.passes import Watching


def test_the_command_line_has_every_option() -> None:
    of_command = {field.name: field.default for field in fields(EvalConfig)}
    for field in fields(EvalOptions):
        assert of_command[field.name] == field.default


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_an_option_that_is_true_or_false_takes_nothing_else(value: Any) -> None:
    with pytest.raises(UserError, match=rf"^accuracy={value!r} is not True or False; give one$"):
        EvalOptions(accuracy=value)


def test_arguments_of_python_are_checked_and_become_plain() -> None:
    options = EvalOptions.of(
        {
            "forgetting": np.int64(30),
            "accuracy_words": [np.int64(4), 9],
            "frequency_edges": ["10,100"],
            "max_tokens": 3,
        }
    )
    assert options.forgetting is True
    assert (options.forgetting_tokens, options.accuracy_words) == (30, [4, 9])
    assert options.edges == (10, 100)
    assert EvalOptions.of({"forgetting": None}) == EvalOptions()
    assert EvalOptions.of({"forgetting": True}).forgetting_tokens == 10_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"log_neighbors": 3}, "log_neighbors=3 needs log_samples as well"),
        ({"log_neighbors": -1, "log_samples": True}, "log_neighbors = -1 must be at least 0"),
        ({"accuracy_words": []}, "names no word"),
        ({"accuracy_words": [1, -1]}, "accuracy_words = -1 must be at least 0"),
        ({"accuracy_words": 0}, "accuracy_words = 0 must be at least 1"),
        ({"forgetting": 0}, "forgetting = 0 must be at least 1"),
        ({"frequency_edges": [100, 50]}, "must be increasing"),
    ],
)
def test_a_bad_value_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        EvalOptions.of(values)


class Tokens(Notes):
    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        raise AssertionError("nothing is scored here")


class Words(Tokens):
    pass


def test_observers_of_both_passes_are_found_by_their_kind() -> None:
    first, second, other = Words(), Words(), Tokens()
    observers = Observers(Watching(observers=[other, first]), Watching(observers=[second]))
    assert observers.of(Words) == [first, second]
    assert observers.of(AccuracyLog) == []


def test_a_run_resumes_whatever_it_writes_but_not_with_other_numbers() -> None:
    plain = EvalOptions()
    written = EvalOptions(frequency_edges=[7], log_samples=True, show_learned=True)
    assert written.identity() == plain.identity()
    for other in (EvalOptions(check=True), EvalOptions(accuracy=True, accuracy_words=[3])):
        assert other.identity() != plain.identity()


def test_what_follows_one_stream_is_named() -> None:
    assert EvalOptions(accuracy_words=5, check=True).one_stream() == []
    options = EvalOptions(accuracy=True, log_samples=True, log_neighbors=2)
    assert options.one_stream() == ["accuracy", "log_neighbors"]
