"""Training, tuning and image experiments in two processes of this machine end in the files of
one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hebblm
from awd_lstm import read_config
from awd_lstm.checkpoint import STATE, load_state
from awd_lstm.document import CONFIG

from .conftest import World, main_of, one_thread, result

TIMES = {"seconds", "provenance", "training_seconds", "report"}


def started(command: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a command in two processes, one thread each."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(hebblm.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    words = [*torchrun, "-m", f"hebblm.cli.{command}", *map(str, arguments)]
    return subprocess.Popen(
        words, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def both(command: str, folder: Path, *arguments: object) -> tuple[Path, Path, str]:
    """Run a command in two processes and in this one alone; return the folders of their results,
    and what two said.
    """
    two, one = folder / "two", folder / "one"
    running = started(command, *arguments, "--output-path", two)
    told = "".join(running.communicate(timeout=300))
    assert running.returncode == 0, told
    with one_thread():
        assert main_of(command)([*map(str, arguments), "--output-path", str(one)]) == 0
    return two, one, told


def untimed(document: Any) -> Any:
    """Return a JSON document without what no two runs have in common."""
    if isinstance(document, dict):
        return {key: untimed(value) for key, value in document.items() if key not in TIMES}
    return [untimed(each) for each in document] if isinstance(document, list) else document


def processes(document: Any) -> tuple[Any, Any]:
    """Return how many processes a document says that it is of, and how they were connected."""
    return document["provenance"].get("processes"), document["provenance"].get("backend")


@pytest.mark.slow
def test_a_training_in_two_processes_survives_a_kill_and_ends_in_the_model_of_one(
    world: World, tmp_path: Path
) -> None:
    arguments = ["--corpus", world.prepared, "--preset", "tiny", "--epochs", "2"]
    two, one = tmp_path / "two", tmp_path / "one"
    running = started("train", *arguments, "--output-path", two)
    # which is saved behind the model
    while not ((two / CONFIG).exists() and load_state(two / STATE)[1]["epoch"]):
        assert running.poll() is None
        time.sleep(0.1)
    ranks = subprocess.run(
        ["ps", "--ppid", str(running.pid), "-o", "pid="], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(ranks) == 2
    os.kill(int(ranks[1]), signal.SIGKILL)
    killed = time.monotonic()
    _, told = running.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    assert running.returncode == 1
    assert f"exitcode  : -9 (pid: {ranks[1]})" in told.partition("Root Cause")[2]

    again = started("train", *arguments, "--output-path", two)
    told = "".join(again.communicate(timeout=300))
    assert again.returncode == 0, told
    assert told.count("model in") == 1
    assert told.count("the run that was interrupted goes on") == 1
    assert told.count("epoch 2/2") == 1, "what is told is told once"
    with one_thread():
        assert main_of("train")([*map(str, arguments), "--output-path", str(one)]) == 0
    stories = [read_config(folder)["training"] for folder in (two, one)]
    assert [(story["processes"], story.get("backend")) for story in stories] == [
        (2, "gloo"),
        (1, None),
    ]
    # The preset multiplies in bfloat16, whose rounding is coarse.
    assert stories[0]["valid_losses"] == pytest.approx(stories[1]["valid_losses"], rel=1e-3)
    assert {path.name for path in two.iterdir()} == {path.name for path in one.iterdir()}


@pytest.mark.slow
def test_a_tuning_in_two_processes_finds_what_one_finds(tmp_path: Path) -> None:
    two, one, said = both(
        "tune", tmp_path, "--checkpoint", "tiny-pydoc-raw", "--target", "numpy",
        "--memory-content", "test",
        "--max-tokens", "60", "--methods", "mixture,hebb,dynamic",
        "--set", "base.lr=1", "dynamic.rule=sgd", "dynamic.lr=0.01",
    )  # fmt: skip
    expected = untimed(result(one, "tuned.json"))
    assert len(expected["tried"]["hebb"]) > 100
    assert untimed(result(two, "tuned.json")) == expected
    halves = re.findall(r"^(\d+) of (\d+) points are done here", said, re.MULTILINE)
    assert said.count("values in") == 1
    assert halves, "the first process says that it waits"
    assert all(2 * int(own) - int(count) in (0, 1) for own, count in halves)
    told = [processes(result(folder, "tuned.json")) for folder in (one, two)]
    assert told == [(None, None), (2, "gloo")]
    assert (two / "config.json").read_bytes() == (one / "config.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "settings"),
    [("permuted-mnist", ("epochs=1", "tasks=2", "tune_tasks=1")), ("online", ())],
)
def test_seeds_in_two_processes_give_what_one_gives(
    experiment: str, settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))
    chosen = ["--set", *settings] if settings else []
    two, one, _ = both(
        "vision", tmp_path, experiment, "--scale", "smoke", "--seeds", "1", "2", *chosen
    )
    expected = untimed(result(one, "result.json"))
    assert [each["seed"] for each in expected["seeds"]] == [1, 2]
    assert untimed(result(two, "result.json")) == expected
    told = [processes(result(folder)) for folder in (one, two)]
    assert told == [(None, None), (2, "gloo")]
    names = {path.name for path in one.iterdir()}
    assert {path.name for path in two.iterdir()} == names
    for name in names:
        if name.endswith(".safetensors"):
            assert (two / name).read_bytes() == (one / name).read_bytes(), name
