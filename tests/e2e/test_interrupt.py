"""Ctrl-C leaves valid files, and run the same command to continue afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from awd_lstm.checkpoint import load_state
from hebblm.cli.eval import main as evaluate
from hebblm.cli.train import main as train
from hebblm.report import Result

from .conftest import World

WAIT = 120.0  # seconds a command may take to get to the point where it is interrupted


def interrupted(module: str, arguments: list[str], cache: Path, ready: Callable[[], bool]) -> str:
    """Run a command until ``ready``, press Ctrl-C, and return what it printed to standard error."""
    environment = {**os.environ, "HEBBLM_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"hebblm.cli.{module}", *arguments, "--device", "cpu"]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Started in the background of a script, the tests would hand down that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(int(WAIT / 0.05)):
        if ready():
            break
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "interrupted" in errors.splitlines()[-1]
    return errors


def leftovers(folder: Path) -> list[Path]:
    """Return temporary files, which begin with a dot."""
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_training_goes_on_after_ctrl_c(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    state = folder / "training.safetensors"
    arguments = [
        "--corpus",
        str(world.other_prepared),
        "--preset",
        "tiny",
        "--output-path",
        str(folder),
    ]
    arguments += ["--epochs", "8"]  # a few seconds, so that it is interrupted long before the end
    told = interrupted("train", arguments, tmp_path / "cache", state.exists)
    assert told.endswith("interrupted; finished parts are kept; run the same command to continue\n")
    record = load_state(state)[1]
    assert record["segments"] > 0, "the segment under way was learned and saved"
    assert record["epoch"] < 8
    assert not leftovers(tmp_path)
    capsys.readouterr()
    assert train([*arguments, "--device", "cpu"]) == 0
    said = capsys.readouterr().err
    assert f"goes on in {folder}: {record['epoch']} of 8 epochs are done" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("epoch ")] == [
        f"{epoch}/8" for epoch in range(record["epoch"] + 1, 9)
    ]
    assert (folder / "config.json").exists()
    assert not state.exists()


def test_a_reading_that_is_interrupted_saves_nothing_and_says_so(tmp_path: Path) -> None:
    text, save, held = tmp_path / "text", tmp_path / "known", []
    os.mkfifo(text)

    def is_read() -> bool:
        with contextlib.suppress(OSError):  # nobody reads it yet
            held.append(os.open(text, os.O_WRONLY | os.O_NONBLOCK))
        return bool(held)

    arguments = ["tiny-pydoc-raw", str(text), "--save", str(save)]
    told = interrupted("read", arguments, tmp_path / "cache", is_read)
    os.close(held[0])
    assert told.endswith("hebblm-read: interrupted; nothing was saved\n")
    assert not save.exists()


def test_an_older_result_survives_ctrl_c(world: World, tmp_path: Path) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    arguments = [
        "--intra-domain",
        str(world.prepared),
        "--checkpoint",
        str(world.model),
        "--output-path",
        str(out),
    ]
    assert evaluate([*arguments, "--methods", "lstm", "--max-tokens", "50", "--device", "cpu"]) == 0
    before = {path: path.read_bytes() for path in out.iterdir()}
    slow = [
        "--methods",
        "mbpa",
        "--set",
        "mbpa.solver=exact",
        "mbpa.steps=50",
        "--update-every",
        "1",
    ]
    interrupted(
        "eval", [*arguments, *slow], cache, lambda: any((cache / "memory").glob("*/manifest.json"))
    )
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    assert Result.load(out).scenario.tokens == 50
    assert not leftovers(tmp_path)
