"""What all tests share: a cache of their own, pictures that are laid out and not drawn, and that
those which ask for FAISS are skipped where there is none.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

# a process a core: one thread each, said before torch is loaded
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# The compiled kernels are kept from run to run: they take a minute, and know their own version.
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"hebblm-kernels-{os.getuid()}")
)
# Ignored in what a shell runs in the background; the commands that tests interrupt would inherit
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says nothing about the code on a busy machine.
settings.register_profile("hebblm", deadline=None)
settings.load_profile("hebblm")


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of the tests, and the tests out of it."""
    before = os.environ.get("HEBBLM_CACHE")
    os.environ["HEBBLM_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["HEBBLM_CACHE"]
    else:
        os.environ["HEBBLM_CACHE"] = before


@pytest.fixture(autouse=True, scope="session")
def whole_lines() -> Iterator[None]:
    """Let lines be as long as they are, whoever runs the tests; see
    :func:`hebblm.runtime.progress.write`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def blank_pictures() -> Iterator[None]:
    """Have pictures be empty: drawing takes most of the time of a small evaluation with a report.

    Tests that look at pictures ask for ``drawn_pictures``.
    """
    from hebblm.report.plots import drawing

    from .support.pictures import blank

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "render", blank)
        yield


@pytest.fixture
def drawn_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw pictures as users see them."""
    from hebblm.report.plots import drawing

    from .support.pictures import render

    monkeypatch.setattr(drawing, "render", render)


@pytest.fixture(autouse=True, scope="session")
def skipped_without_faiss() -> Iterator[None]:
    """Skip a test as soon as it asks for FAISS, where that is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("faiss") is None:
            from hebblm.memory import faiss_index

            ask = SimpleNamespace(import_module=pytest.importorskip, util=importlib.util)
            patch.setattr(faiss_index, "importlib", ask)
        yield


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Give torch two threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def methods_as_shipped() -> Iterator[None]:
    """Forget after a test the methods that it registered."""
    from hebblm.adapt.methods import EVALUATED, METHODS, SECTIONS, SOURCES

    known = [(table, dict(table)) for table in (METHODS, EVALUATED, SECTIONS, SOURCES)]
    yield
    for table, before in known:
        if len(table) != len(before):
            table.clear()
            table.update(before)  # type: ignore[attr-defined]
