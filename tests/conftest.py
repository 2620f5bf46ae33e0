"""What all tests share: a cache of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # a process a core: one thread each, said before torch is loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")
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
