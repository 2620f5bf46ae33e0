"""Files of tensors: the same bytes for the same content, and nothing else than what was written is
read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hebblm.errors import UserError
from hebblm.io.tensors import read_tensors, write_tensors

BASE = torch.arange(12.0).view(3, 4)
TENSORS = {
    "shared": BASE,
    "rows": BASE[1:],
    "turned": BASE.t(),
    "half": BASE.to(torch.bfloat16),
    "whole": torch.tensor(7),
    "nothing": torch.zeros(0, 3),
    "learned": BASE.clone().requires_grad_(),
}


def test_tensors_of_all_kinds_and_their_record_come_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", TENSORS, "kind", {"place": 3, "sent": [1.5]})
    tensors, record = read_tensors(tmp_path / "a", "kind", "remedy")
    assert record == {"place": 3, "sent": [1.5]}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor), name
    write_tensors(
        tmp_path / "b", dict(reversed(TENSORS.items())), "kind", {"sent": [1.5], "place": 3}
    )
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_what_was_written_can_be_resized_afterwards(tmp_path: Path) -> None:
    buffer = torch.zeros(4)
    write_tensors(tmp_path / "a", {"buffer": buffer}, "kind")
    assert len(buffer.resize_(8)) == 8


def test_a_file_of_another_kind_has_no_record_and_one_without_a_hash_is_read(
    tmp_path: Path,
) -> None:
    write_tensors(tmp_path / "a", TENSORS, "kind", {"place": 3})
    assert read_tensors(tmp_path / "a", "other", "remedy")[1] == {}
    save_file({"x": torch.ones(2)}, tmp_path / "b", {"kind": '{"place": 3}'})
    assert read_tensors(tmp_path / "b", "kind", "remedy")[1] == {"place": 3}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda content: content[:-1] + bytes([content[-1] ^ 1]),
            "was changed since it was written; remedy",
        ),
        (
            lambda content: content.replace(b"place", b"plate"),
            "was changed since it was written; remedy",
        ),
        (lambda content: content[:-1], "is truncated or unreadable; remedy"),
        (lambda content: b"", "is truncated or unreadable; remedy"),
    ],
)
def test_other_content_is_refused(damage, told: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write_tensors(tmp_path / "a", TENSORS, "kind", {"place": 3})
    (tmp_path / "a").write_bytes(damage((tmp_path / "a").read_bytes()))
    with pytest.raises(UserError, match=told):
        read_tensors(tmp_path / "a", "kind", "remedy")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a does not exist; remedy"):
        read_tensors(tmp_path / "a", "kind", "remedy")
