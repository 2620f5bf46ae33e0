"""The library names arguments in its messages, and a command turns them into its options."""

from __future__ import annotations

import pytest

from hebblm.runtime.wording import with_options, worded, wording

NAMES = {"k", "column", "check", "max_tokens", "log_samples", "memory_content", "text", "device"}


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("use memory_content=test or k=5.", "use --memory-content test or --k 5."),
        ("check=True and log_samples=True too", "--check and --log-samples too"),
        ("choose one with `column`", "choose one with --column"),
        ("raise max_tokens to 9, see log_samples.", "raise --max-tokens to 9, see --log-samples."),
        ("(column=NAME)", "(--column NAME)"),
        (
            "use settings={'dynamic.rule': 'sgd', 'dynamic.lr': 0.01}",
            "use --set dynamic.rule=sgd dynamic.lr=0.01",
        ),
        ("lower mbpa.lr in `settings`", "lower mbpa.lr in --set"),
    ],
)
def test_arguments_become_options(message: str, options: str) -> None:
    assert with_options(NAMES)(message) == options


@pytest.mark.parametrize(
    "message",
    [
        "k = 0 must be at least 1",
        "max_tokens = many must be a whole number",
        "memory.k=5 and memory.device=cpu",
        "the text of this device has no column",
        "/tmp/max_tokens/log_samples.json does not exist",
        "leave --max-tokens 3 out",
        "'k=5' and `other`",
    ],
)
def test_other_words_stay(message: str) -> None:
    assert with_options(NAMES)(message) == message


def test_only_the_messages_of_a_command_are_turned() -> None:
    assert worded("use k=5") == "use k=5"
    with wording(with_options(NAMES)):
        assert worded("use k=5") == "use --k 5"
        with wording(with_options({"column"})):
            assert worded("use k=5") == "use k=5"
    assert worded("use k=5") == "use k=5"
