"""Several processes through the command: one result, the numbers of one process, one line for what
goes wrong.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from hebblm.api.request import Request
from hebblm.cli.eval import main as evaluate
from hebblm.cli.memory import main as remember
from hebblm.errors import UserError
from hebblm.reader.corpora import SavedMemory

from .conftest import World

ROOT = Path(__file__).parents[2]
WAIT = 200.0  # seconds for a busy machine to start a few processes
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CAPPED = {"memory.capacity": 50}
METHODS = "lstm,cache,knn,mixture,mbpa,hebb,mixture+hebb,dynamic,dynamic+best,best"


def chosen(world: World, folder: Path, *more: str) -> list[str]:
    arguments = [
        "--checkpoint",
        str(world.model),
        "--target",
        str(world.other_prepared),
        "--device",
        "cpu",
    ]
    arguments += [
        "--methods",
        METHODS,
        "--set",
        "dynamic.rule=sgd",
        "dynamic.lr=0.01",
        "--log-samples",
    ]
    arguments += ["--update-every", "10", "--k", "20", "--streams", "3", "--max-tokens", "240"]
    return [*arguments, "--output-path", str(folder), *more]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def losses(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    table = pq.read_table(folder / "tokens.parquet")
    return {name: table[name].to_numpy() for name in table.column_names if name.startswith("nll_")}


@pytest.mark.slow
def test_two_processes_write_one_result(world: World, tmp_path: Path) -> None:
    command = [*TORCHRUN, "-m", "hebblm.cli.eval", *chosen(world, tmp_path / "two")]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("results in") == 1
    assert done.stderr.count("reads the text as one stream") == 1
    assert evaluate(chosen(world, tmp_path / "one")) == 0
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert set(one) == set(two) == {f"nll_{name}" for name in METHODS.split(",")}
    for name, nll in one.items():
        assert abs(float(nll.astype(float).mean() - two[name].astype(float).mean())) < 1e-6, name
        np.testing.assert_allclose(two[name], nll, rtol=0, atol=1e-4, err_msg=name)
    records = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    told = records[1]["scenario"].pop("processes")
    assert records[0]["scenario"] == records[1]["scenario"]
    assert records[0]["memory"] == records[1]["memory"]
    assert (told["processes"], told["backend"]) == (2, "gloo")
    assert told["bytes_a_token"] > 1000
    assert told["seconds_a_token"] > 0


@pytest.mark.parametrize(("option", "status"), [("--models", 0), ("--no-such", 2)])
def test_a_rank_does_not_wait_for_the_interpreter(option: str, status: int) -> None:
    program = (
        "import atexit\nfrom hebblm.cli.eval import main\natexit.register(print, "
        "'finalises')\nmain()"
    )
    own = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    command = [sys.executable, "-c", program, "--streams", "2", option]
    done = subprocess.run(
        command, env={**environment(), **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert ("small-ptb-raw" in done.stdout, "--no-such" in done.stderr) == (
        status == 0,
        status == 2,
    )
    assert "finalises" not in done.stdout


def ranks(module: str, arguments: list[str], cache: Path) -> str:
    """Run a command in two processes; return what they said."""
    command = [*TORCHRUN, "-m", f"hebblm.cli.{module}", *arguments]
    environ = {**environment(), "HEBBLM_CACHE": str(cache)}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("store", ["ram", "disk"])
def test_two_processes_build_the_memory_of_the_training_text(
    store: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = (
        f"--intra-domain {world.prepared} --checkpoint {world.model} --device cpu --methods "
        "mixture,hebb --k 20"
    )
    line += (
        " --memory-content both --training-entries 1000 --max-tokens 90 --update-every 10 "
        "--streams 3 --log-samples"
    )
    arguments = [*line.split(), "--set", f"memory.store={store}"]
    two = [*arguments, "--output-path", str(tmp_path / "two")]
    ranks("eval", two, tmp_path / "cache")
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "another"))
    assert evaluate([*arguments, "--output-path", str(tmp_path / "one")]) == 0
    for name, nll in losses(tmp_path / "one").items():
        np.testing.assert_allclose(
            losses(tmp_path / "two")[name], nll, rtol=0, atol=1e-4, err_msg=name
        )
    records = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert [record["memory"]["entries"] for record in records] == [1090, 1090]


@pytest.mark.slow
def test_two_processes_build_a_memory(world: World, tmp_path: Path) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text(world.other.read_text().replace(" .", "."))
    arguments = ["build", "--model", str(world.model), "--text", str(prose), str(world.text)]
    arguments += ["--device", "cpu", "--output-path"]
    told = ranks("memory", [*arguments, str(tmp_path / "two")], tmp_path / "cache")
    assert told.count("entries in") == 1
    assert remember([*arguments, str(tmp_path / "one")]) == 0
    one, two = (SavedMemory.of(tmp_path / name) for name in ("one", "two"))
    assert one.words == two.words
    assert one.about == two.about
    assert one.about["tokenizer"] == "moses"
    for name in one.manifest.files:
        first, second = ((each.folder / name).read_bytes() for each in (one, two))
        if name.startswith("keys"):
            keys = [np.frombuffer(data, dtype=np.float32) for data in (first, second)]
            np.testing.assert_allclose(keys[0], keys[1], rtol=0, atol=1e-6)
        elif name.startswith("values"):
            assert first == second


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"streams": 1}, "2 processes are more than streams = 1; use streams=2 or more"),
        ({"streams": 3, "settings": CAPPED}, "memory.capacity=50 is not divided over 2 processes"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(
    world: World, options: dict[str, Any], told: str
) -> None:
    request = Request.of(str(world.model), str(world.other_prepared), **options)
    with pytest.raises(UserError, match=told):
        request.check_ranks(2)


def test_a_mistake_that_all_see_is_told_once(world: World, tmp_path: Path) -> None:
    asked = chosen(world, tmp_path / "none", "--set", "memory.capacity=50")
    command = [*TORCHRUN, "-m", "hebblm.cli.eval", *asked]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("hebblm-eval: error")]
    assert "memory.capacity=50 is not divided over 2 processes" in line
    assert not (tmp_path / "none").exists()


def test_our_own_launcher_is_gone_and_torchrun_is_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*chosen(world, tmp_path / "two", "--methods", "lstm"), "--processes"]
    assert evaluate([*words, "2"]) == 2
    said = capsys.readouterr().err
    remedy = re.search(r"torchrun (--nproc-per-node) P (-m hebblm\.cli\.eval) \.\.\.", said)
    assert remedy, said
    command = [
        str(Path(sys.executable).with_name("torchrun")),
        remedy[1],
        "2",
        *remedy[2].split(),
        *words[:-1],
    ]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        json.loads((tmp_path / "two" / "result.json").read_text())["provenance"]["processes"] == 2
    )


def children(process: int) -> dict[str, int]:
    """Return the ranks that a process has started, with their numbers."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            found |= {
                word[5:].decode(): int(child) for word in variables if word.startswith(b"RANK=")
            }
    return found


def killed(command: list[str], cache: Path, victim: str) -> tuple[int, str, dict[str, int]]:
    """Kill a rank of an evaluation that has begun to read; return status, errors and the ranks'
    processes.
    """
    environ = {**environment(), "HEBBLM_CACHE": str(cache), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + WAIT
    while not (cache / "positions").exists() and time.monotonic() < end:
        time.sleep(0.05)
    ranks = children(process.pid)
    assert sorted(ranks) == ["0", "1"]
    os.kill(ranks[victim], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks.values())
    return process.returncode, errors, ranks


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["0"])
def test_torchrun_names_the_rank_that_is_killed(victim: str, world: World, tmp_path: Path) -> None:
    arguments = [
        "-m",
        "hebblm.cli.eval",
        *chosen(world, tmp_path / "none", "--max-tokens", "100000"),
    ]
    status, errors, ranks = killed([*TORCHRUN, *arguments], tmp_path / "cache", victim)
    assert status == 1
    cause = errors.partition("Root Cause")[2]
    assert f"rank      : {victim} (local_rank: {victim})" in cause
    assert f"exitcode  : -9 (pid: {ranks[victim]})" in cause


@pytest.mark.faults
@pytest.mark.parametrize("seed", [1])  # of which one rank is killed, then the other
def test_killed_ranks_go_on_when_they_are_started_again(
    world: World, tmp_path: Path, seed: int
) -> None:
    long = ["--max-tokens", "450", "--methods", "lstm,cache,mixture,hebb,dynamic+best"]
    arguments = ["-m", "tests.e2e.killed_ranks", str(seed), *chosen(world, tmp_path / "two", *long)]
    environ = {**environment(), "HEBBLM_CACHE": str(tmp_path / "cache")}
    command = [*TORCHRUN, "--max-restarts", "2", *arguments]
    done = subprocess.run(
        command,
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3 * WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("continues after its first") >= 2, done.stderr
    assert evaluate(chosen(world, tmp_path / "one", *long)) == 0
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    for name, nll in one.items():
        np.testing.assert_allclose(two[name], nll, rtol=0, atol=1e-4, err_msg=name)
    assert not list((tmp_path / "cache").glob("positions/*"))
