"""A server in a process of its own, for tests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

START = 120.0  # seconds
MODEL = "served"


class Served:
    """A running server.

    Args:
        process: of the server.
        address: where it answers.
        log: file that it writes to.
    """

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.process, self.address, self.log = process, address, log

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> tuple[int, Any]:
        """Return status and JSON of an answer; ``body`` may be bytes."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = Request(
            f"{self.address}{path}", data, headers or {},
            method=method or ("GET" if body is None else "POST"),
        )  # fmt: skip
        try:
            with urlopen(request, timeout=timeout) as answer:
                status, found = answer.status, answer.read()
        except HTTPError as error:
            status, found = error.code, error.read()
        try:
            return status, json.loads(found)
        except ValueError:
            return status, found.decode()

    def post(self, path: str, **body: Any) -> Any:
        """Return the JSON of an answer that must succeed."""
        status, found = self.ask(path, body)
        assert status == 200, found
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the server, and return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(tmp: Path, model: str, *options: str) -> Iterator[Served]:
    """Run a server of a model."""
    log = tmp / f"log-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "hebblm.cli.main", "serve", model, "--port", "0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--name", MODEL, *options], stdout=stream, stderr=stream
        )
    try:
        yield Served(process, _address(process, log), log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where a server answers, as soon as it does."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        found = re.search(r"try: curl (http://\S+?)/v1", log.read_text())
        if found is not None:
            return found[1].replace("0.0.0.0", "127.0.0.1")
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"no server within {START} s: {log.read_text()}")
