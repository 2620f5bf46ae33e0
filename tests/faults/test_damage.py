"""Some damaged files of each format; ``make faults`` tries thousands."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
from pathlib import Path

import pytest

from awd_lstm import CheckpointError
from hebblm.errors import UserError
from hebblm.vision.data import load_cifar100, load_mnist

from .damage import DEFECTS, LIMIT, trial
from .formats import FORMATS, Format, made, make_pictures

pytestmark = pytest.mark.faults
SOME = 25
FOUND_BEFORE = {"folder of transformers": (5610, 6439, 9121)}
"""Seeds beyond these that were a defect once."""


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_damage_is_refused_in_one_line_or_changes_nothing(form: Format, tmp_path: Path) -> None:
    right = made(form, tmp_path / "sample")
    for seed in (*range(SOME), *FOUND_BEFORE.get(form.name, ())):
        found, told = trial(form, tmp_path / "sample", right, seed)
        assert found not in DEFECTS, (seed, found, told)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_what_is_no_file_is_refused(form: Format, tmp_path: Path) -> None:
    right = made(form, tmp_path / "sample")
    for name in form.files:
        path = tmp_path / "sample" / name
        kept = path.read_bytes()
        for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name), Path.touch):
            path.unlink()
            make(path)
            signal.alarm(LIMIT)  # ends the tests rather than letting them hang
            if name == "generation_config.json":  # nothing in it is used
                assert form.read(tmp_path / "sample") == right
            else:
                with pytest.raises((UserError, CheckpointError)) as caught:
                    form.read(tmp_path / "sample")
                assert "\n" not in str(caught.value)
            signal.alarm(0)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.write_bytes(kept)


def test_a_pickle_from_outside_is_never_opened(tmp_path: Path) -> None:
    make_pictures(tmp_path)
    with pytest.raises(UserError, match="put the original file there"):
        load_cifar100([tmp_path / "pickles"])


def test_sizes_beyond_memory_are_refused(tmp_path: Path) -> None:
    make_pictures(tmp_path)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:4] + b"\xff" * 4 + content[8:]))
    with pytest.raises(UserError, match="by its header"):
        load_mnist([tmp_path])
