from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from hebblm.errors import UserError
from hebblm.evaluation.training_text import Segments


def test_a_part_that_does_not_fit_on_the_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    parts = Segments(tmp_path / "parts")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UserError, match="cannot write"):
            parts.save(0, {"x": torch.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(parts.folder.iterdir())
    parts.save(0, {"x": torch.zeros(1000)})
    assert torch.equal(parts.load(0)["x"], torch.zeros(1000))
