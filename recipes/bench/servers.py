"""Servers in processes of their own, as a measurement asks them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hebblm.errors import UserError

READY = 300.0  # seconds in which a server must answer
LOOK = 0.02  # seconds between two looks whether it does
ANSWER = 600.0  # seconds of an answer
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer, and what it took.

    Args:
        body: of the answer.
        seconds: that passed.
        processor: seconds of the server's processor time.
    """

    body: Any
    seconds: float
    processor: float


class RunningServer:
    """A server that answers over HTTP.

    Args:
        process: of the server.
        port: that it answers at.
        ready: seconds from its start to its first answer, and those of processor time.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, ready: tuple[float, float]
    ) -> None:
        self._process, self._port = process, port
        self.address = f"http://{HOST}:{port}"
        self.ready_seconds, self.ready_processor = ready

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Asked:
        """Send one request over a connection of its own, and return the answer.

        Raises:
            UserError: the server refuses it.
        """
        data = None if body is None else json.dumps(body).encode()
        spent, started = processor_seconds(self._process.pid), time.perf_counter()
        status, answer = _request(self._port, path, data)
        seconds = time.perf_counter() - started
        used = processor_seconds(self._process.pid) - spent
        if status != 200:
            raise UserError(f"{path} answers with status {status}: {answer[:300].decode()}")
        return Asked(json.loads(answer), seconds, used)


def processor_seconds(process: int) -> float:
    """Return the processor time of all threads of a process so far."""
    return time.clock_gettime((~process << 3) | 2)


@contextmanager
def running(command: Sequence[str], threads: int) -> Iterator[RunningServer]:
    """Run a server while the block runs.

    Args:
        command: that starts it; ``{port}`` in it becomes a free port.
        threads: that libraries of linear algebra may use.

    Raises:
        UserError: it ends before it answers, or takes too long.
    """
    port = _free_port()
    words = [word.replace("{port}", str(port)) for word in command]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            started = time.perf_counter()
            process = subprocess.Popen(words, stdout=stream, stderr=stream, env=environment)
        try:
            _wait_until_ready(process, port, log)
            ready = time.perf_counter() - started, processor_seconds(process.pid)
            yield RunningServer(process, port, ready)
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.perf_counter() + READY
    while time.perf_counter() < end:
        with suppress(OSError, http.client.HTTPException):
            if _request(port, "/v1/models", None)[0] == 200:
                return
        if process.poll() is not None:
            break
        time.sleep(LOOK)
    told = log.read_text(errors="replace").strip().splitlines()[-3:]
    raise UserError(f"the server does not answer: {' / '.join(told)}")


def _request(port: int, path: str, data: bytes | None) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER)
    try:
        method = "GET" if data is None else "POST"
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
