from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
SHOW = "import os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))"


def shown(imports: str, **chosen: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if name not in CHOICES
    } | chosen
    command = [sys.executable, "-c", f"{imports}; {SHOW}"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("imports", ["import hebblm", "from hebblm.cli.eval import main"])
def test_threads_wait_briefly_by_default(imports: str) -> None:
    assert shown(imports) == "passive 1000"


@pytest.mark.parametrize("name", CHOICES)
def test_what_the_user_chose_stays(name: str) -> None:
    expected = {"OMP_WAIT_POLICY": "active None", "GOMP_SPINCOUNT": "None active"}
    assert shown("import hebblm", **{name: "active"}) == expected.get(name, "None None")


def test_where_torch_was_loaded_before_nothing_is_said_that_it_would_not_read() -> None:
    assert shown("import torch; import hebblm") == "None None"
