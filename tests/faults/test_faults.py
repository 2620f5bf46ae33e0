"""Some of what docs/reliability.md promises, tried; ``make faults`` tries thousands."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from awd_lstm import CheckpointError
from hebblm.errors import UserError
from hebblm.io.files import read_json
from hebblm.vision.data import load_cifar100, load_mnist

from . import disk, killed, numbers, options, run, serving, texts, variants
from .damage import DEFECTS, LIMIT, trial
from .formats import FORMATS, Format, made, make_pictures
from .sandbox import WRITERS, Case

pytestmark = pytest.mark.faults
SOME = 25
FOUND_BEFORE = {"folder of transformers": (5610, 6439, 9121)}
"""Seeds beyond these that were a defect once."""


def assert_survived(case: Case) -> None:
    assert case.tried
    assert not case.defects, case.defects[0]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_damage_is_refused_in_one_line_or_changes_nothing_and_what_is_no_file_is_refused(
    form: Format, tmp_path: Path
) -> None:
    folder = tmp_path / "sample"
    right = made(form, folder)
    for seed in (*range(SOME), *FOUND_BEFORE.get(form.name, ())):
        found, told = trial(form, folder, right, seed)
        assert found not in DEFECTS, (seed, found, told)
    for name in form.files:
        path = folder / name
        kept = path.read_bytes()
        for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name), Path.touch):
            path.unlink()
            make(path)
            signal.alarm(LIMIT)  # ends the tests rather than letting them hang
            if name == "generation_config.json":  # nothing in it is used
                assert form.read(folder) == right
            else:
                with pytest.raises((UserError, CheckpointError)) as caught:
                    form.read(folder)
                assert "\n" not in str(caught.value)
            signal.alarm(0)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.write_bytes(kept)


def test_a_pickle_from_outside_is_never_opened_and_sizes_beyond_memory_are_refused(
    tmp_path: Path,
) -> None:
    make_pictures(tmp_path)
    with pytest.raises(UserError, match="put the original file there"):
        load_cifar100([tmp_path / "pickles"])
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:4] + b"\xff" * 4 + content[8:]))
    with pytest.raises(UserError, match="by its header"):
        load_mnist([tmp_path])


def test_a_command_that_is_killed_ends_with_the_same_files(tmp_path: Path) -> None:
    names = ["eval", "memory build on disk"]
    kills = ["1", "3"]  # of which each command has one well after its first save
    command = [sys.executable, "-m", "tests.faults.killed", str(tmp_path), *kills, *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=run.ROOT, env=environment, stdout=subprocess.PIPE, check=True
    )
    figures = json.loads(done.stdout)
    assert [*figures] == names
    for found in figures.values():
        assert (found["tried"], found["survived"], found["found"]) == (2, 2, [])
        assert found["resumed"] > 0


def test_two_at_once_end_as_one_does(tmp_path: Path) -> None:
    for _, case in killed.two_at_once(tmp_path, pairs=1, commands=("memory build",)):
        assert_survived(case)


def test_a_full_or_foreign_disk_leaves_one_line_and_old_files(tmp_path: Path) -> None:
    some = tuple(
        writer
        for writer in WRITERS
        if writer.name in ("preprocess", "report inspect", "memory merge")
    )
    for _, case in disk.cases(tmp_path, writers=some, sizes=(0, 2_000, 200_000)):
        assert_survived(case)


def test_odd_texts_are_read_as_they_are_or_refused_and_large_ones_in_bounded_memory(
    tmp_path: Path,
) -> None:
    names = (
        "a byte order mark",
        "NUL",
        "lone surrogates",
        "combining marks",
        "blank lines alone",
        "CR LF",
    )
    for _, case in texts.odd_texts(tmp_path, names, readers=texts.READERS[:1]):
        assert_survived(case)
    assert_survived(
        texts.large_text(tmp_path, (texts.READ,), range(1 << 16, (1 << 16) + 1), size=4 << 20)
    )


@pytest.mark.parametrize("page", texts.PAGES)
def test_no_page_takes_text_for_markup(page: str, tmp_path: Path) -> None:
    for number, word in enumerate(texts.HOSTILE[:3]):
        assert texts.defect(texts.PAGES[page], word, tmp_path / str(number)) == ""


def test_random_options_end_with_one_line_or_well_and_have_nothing_imported_or_run(
    tmp_path: Path,
) -> None:
    assert_survived(options.parsed(tmp_path, 150))
    assert_survived(options.lines(tmp_path, 8))
    assert_survived(options.files(tmp_path, 60))


def test_what_is_finite_stays_finite() -> None:
    for seed in range(20):
        found = numbers.trial(numbers.problem(seed))
        assert found in ("finite", "refused", numbers.NOT_FINITE_ITSELF), seed


def test_a_short_soak_is_flat(tmp_path: Path) -> None:
    for _, case in numbers.soak_cases(tmp_path, total=2_500, slower=float("inf")):
        assert_survived(case)


def test_the_server_survives_requests_clients_kills_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    # of each kind of malformed request several
    assert_survived(serving.malformed_requests(tmp_path, 60))
    for _, case in serving.clients_at_once(tmp_path, clients=4, seconds=2.0):
        if case.note.endswith("at the end"):
            continue  # two seconds say nothing about memory
        assert_survived(case)
    assert_survived(serving.kills(tmp_path, 2))
    (tmp_path / "ended").mkdir()
    assert_survived(serving.ends(tmp_path / "ended", 1))


def test_tests_skip_themselves_where_there_is_no_faiss(tmp_path: Path) -> None:
    case, absent = Case(), variants.Variant("FAISS absent", without_faiss=True)
    skipped = variants.count_tests(absent, tmp_path, case, ("tests/unit/memory/test_factory.py",))
    assert_survived(case)
    assert skipped > 0


def test_nothing_asks_the_network_when_it_is_imported() -> None:
    assert_survived(variants.silent_imports())
    assert_survived(variants.network_imports())


def test_the_page_shows_the_figures_that_are_committed() -> None:
    assert f"\n{run.table(read_json(run.RECORD))}\n" in run.PAGE.read_text(encoding="utf-8")
