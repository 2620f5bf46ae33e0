"""Help, and what a command can refuse by itself, are told before torch, which takes seconds, is
loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hebblm.runtime.spelling import closest
from hebblm.vision.backbones import MADE
from hebblm.vision.settings import BACKBONES

HEAVY = [
    "torch",
    "pandas",
    "pyarrow",
    "faiss",
    "matplotlib",
    "scipy",
    "datasets",
    "sklearn",
    "sacremoses",
]
HELP = [
    *(
        "eval",
        "tune",
        "train",
        "preprocess",
        "report",
        "read",
        "report inspect",
        "vision",
        "memory",
    ),
    *(f"memory {name}" for name in ("build", "info", "merge")),
    *("main", "main eval", "main memory build"),
]
AT_ONCE = {
    "train --corpus ptb --preset papr": "did you mean paper?",
    "train --corpus ptb --arch awd_lstm_smal": "did you mean awd_lstm_small?",
    "preprocess --text x --output-pth y": "did you mean --output-path?",
    "preprocess --text x --destdir y": "did you mean --output-path?",
    "vision online --backbone resnet5": "did you mean resnet50?",
    "vision permuted-mnist --set epohcs=3": "did you mean epochs?",
    "eval --intra-domain ptb --methods heb": "unknown method 'heb'; did you mean hebb?",
    "eval --intra-domain ptb --mehtods lstm": "unknown option '--mehtods'; did you mean --methods?",
    "eval --intra-domain ptb --split=tset": "unknown split 'tset'; did you mean test? choose test, "
    "valid\n",
    "eval --intra-domain ptb --max-tokens many": "max_tokens = many must be a whole number (see",
    "eval --intra-domain ptb --unk-share much": "unk_share = much must be a number (see",
    "eval --intra-domain ptb --device cdua": "unknown device 'cdua'; did you mean cuda?",
    "tune --intra-domain ptb --methods mixtur": "did you mean mixture?",
    "vision permuted-mnst": "unknown experiment 'permuted-mnst'; did you mean permuted-mnist?",
    "vision permuted-mnist --seeds 1 two": "seeds = two must be a whole number (see",
    "read tiny-pydoc-raw --tokenizer mose": "unknown tokenizer 'mose'; did you mean moses?",
    "read tiny-pydoc-raw": "tiny-pydoc-raw has nothing to do; name a text to read (hebblm-read "
    "tiny-pydoc",
    "report inspct x": "unknown subcommand 'inspct'; did you mean inspect?",
    "memory info nowhere": "nowhere does not exist; name the folder of a memory",
    "main evla": "hebblm: error: unknown subcommand 'evla'; did you mean eval? choose read, serve",
    "main --verison": "hebblm: error: unknown option '--verison'; did you mean --version?",
    "main eval --intra-domain ptb --mehtods lstm": "hebblm-eval: error: unknown option "
    "'--mehtods'; did you mean",
}
BEFORE_ANYTHING_IS_OPENED = {
    "eval --intra-domain pbt": "unknown corpus 'pbt'; did you mean ptb?",
    "eval --intra-domain ptb --set hebb.bta=1": "unknown setting 'hebb.bta'; did you mean "
    "hebb.beta?",
    "eval --intra-domain ptb --set heb.beta=1": "did you mean hebb.beta?",
    "eval --intra-domain ptb --set hebb.beta=7": "hebb.beta = 7",
    "eval --intra-domain ptb --set memory.dtype=floa32": "unknown memory.dtype 'floa32'; did you "
    "mean float32?",
    "eval --intra-domain ptb --preset smal": "unknown preset 'smal'; did you mean small?",
    "eval --checkpoint small-wt-raw --target ptb": "did you mean small-wt2-raw?",
    "tune --intra-domain ptb --methods hebb-v1": "hebb-v1 has no values of its own to tune",
}
PROGRAM = f"""
import contextlib, io, json, sys
from importlib import import_module
answers = {{}}
for command in json.load(sys.stdin):
    name, *words = command.split()
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        try:
            status = import_module("hebblm.cli." + name).main(words)
        except SystemExit as error:
            status = error.code
    answers[command] = status, [name for name in {HEAVY} if name in sys.modules], said.getvalue()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[int, list[str], str]]:
    """Return exit status, what is loaded by then, and what was said: all commands in one process,
    one by one.
    """
    commands = [*(f"{command} --help" for command in HELP), *AT_ONCE, *BEFORE_ANYTHING_IS_OPENED]
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    return {command: tuple(answer) for command, answer in json.loads(found.stdout).items()}


@pytest.mark.parametrize("command", HELP)
def test_help_loads_nothing_heavy(
    command: str, answers: dict[str, tuple[int, list[str], str]]
) -> None:
    status, loaded, said = answers[f"{command} --help"]
    assert (status, loaded) == (0, [])
    assert "usage:" in said
    assert (
        max(len(line) for line in said.splitlines() if not line.startswith("  hebblm-vision")) <= 80
    )


@pytest.mark.parametrize(("command", "words"), {**AT_ONCE, **BEFORE_ANYTHING_IS_OPENED}.items())
def test_a_mistyped_name_is_put_right(
    command: str, words: str, answers: dict[str, tuple[int, list[str], str]]
) -> None:
    status, loaded, said = answers[command]
    assert status == 2
    assert not loaded or command in BEFORE_ANYTHING_IS_OPENED
    assert words in said
    assert len(said) < 900, "one line that can be read"


def test_what_prints_a_result_draws_nothing() -> None:
    program = "import sys, hebblm.report.render.document; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_names_are_those_of_what_they_name() -> None:
    assert tuple(MADE) == BACKBONES


def test_a_name_that_is_near_none_is_not_guessed() -> None:
    assert closest("zebra", ("hebb", "mbpa")) is None
    assert closest("HEBB", ("hebb", "mbpa")) == "hebb"
