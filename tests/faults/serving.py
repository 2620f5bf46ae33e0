"""The server: malformed requests, many clients at once, kills while it learns, and its end on
SIGTERM.

It runs in a process that is forked from this one, in which all modules are loaded already.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException, HTTPResponse
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch

import hebblm

from ..support.served import MODEL, Served
from .sandbox import FOREVER, Case, Clock, Group

MODEL_NAME = "tiny-pydoc-raw"
LOADED = ("hebblm.cli.serve", "hebblm.serve.app", "hebblm.serve.run", "hebblm.serve.watching")
NOTES = "The function frobnitz returns a list of snarks .\nCall frobnitz with two arguments .\n"
START = 600.0  # seconds until it answers
MALFORMED, CLIENTS, MINUTES, KILLS, ENDS = 2_000, 8, 5.0, 50, 10
WARM_UP = 0.2  # of the time
GROWTH = 1.05  # of the memory after the warm-up
PAUSE = 0.1  # seconds between two documents, so that not all of them wait when it is killed
LOOK = 200  # malformed requests between two looks whether a right one has the same answer


class Forked:
    """A process that was forked, with what :class:`subprocess.Popen` has."""

    def __init__(self, number: int) -> None:
        self.pid, self.returncode = number, None
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the status if it has ended."""
        if self._status is None:
            number, status = os.waitpid(self.pid, os.WNOHANG)
            if number:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float) -> int:
        """Return the status, once it has ended.

        Raises:
            TimeoutError: it does not end in time.
        """
        end = time.monotonic() + seconds
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} goes on after {seconds:g} s")
            time.sleep(0.01)
        return status


@contextmanager
def forked(folder: Path, *options: str) -> Iterator[Served]:
    """Run a server of the tiny model while the block runs."""
    _load()
    main = import_module("hebblm.cli.serve").main
    log = folder / f"log-{time.monotonic_ns()}"
    sys.stdout.flush()
    number = os.fork()
    if number == 0:
        status = 70
        with suppress(BaseException):
            written = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(written, 1)
            os.dup2(written, 2)
            sys.stdout, sys.stderr = (
                os.fdopen(one, "w", buffering=1, closefd=False) for one in (1, 2)
            )
            torch.set_num_threads(1)  # a fork does not copy the parent's other threads
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            words = [MODEL_NAME, "--port", "0", "--device", "cpu", "--name", MODEL, *options]
            status = main(words)
        os._exit(status)
    process: Any = Forked(number)
    try:
        yield Served(process, _address(process, log), log)
    finally:
        process.kill()
        process.wait(START)


@cache
def _load() -> None:
    """Load all modules that a server needs, those that are loaded at their first use as well."""
    for module in LOADED:
        import_module(module)
    reader = hebblm.load(MODEL_NAME, device="cpu").reader("best")
    reader.read(NOTES)
    reader.suggest("The function ", n=1)


def _address(process: Forked, log: Path) -> str:
    end = time.monotonic() + START
    while time.monotonic() < end:
        text = log.read_text() if log.is_file() else ""
        if (found := re.search(r"try: curl (http://\S+?)/v1", text)) is not None:
            return found[1]
        assert process.poll() is None, text
        time.sleep(0.02)
    raise AssertionError(f"no server within {START:g} s: {log.read_text()}")


# Malformed requests

BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": MODEL, "prompt": "the", "max_tokens": 1},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "the"}]},
    "/v1/suggest": {"prefix": "The func", "n": 1},
    "/v1/explain": {"prefix": "The func", "n": 1},
    "/v1/rank": {"alternatives": ["the list", "a list"], "before": "of "},
    "/v1/documents": {"text": "a document .", "name": "a name"},
    "/v1/feedback": {"prefix": "Call ", "suggestion": "frobnitz", "taken": True},
    "/v1/block": {"words": ["snark"]},
    "/tokenize": {"prompt": "the list"},
    "/detokenize": {"tokens": [1, 2]},
}
"""A right body of each question."""
OF_NO_FIELD: tuple[Any, ...] = ({}, {"a": 1}, {"a": {"b": []}})
"""Values that no field takes but those that are left out of the questions above."""
OUT_OF_RANGE: dict[str, tuple[dict[str, Any], ...]] = {
    "/v1/completions": (
        {"n": 0}, {"n": 10**6}, {"max_tokens": -1}, {"max_tokens": 10**9}, {"temperature": -1},
        {"temperature": 1e308}, {"top_p": 0}, {"top_p": 2}, {"top_k": -7}, {"logprobs": 10**6},
        {"stop": [""]}, {"stop": ["a"] * 100}, {"suffix": "x"}, {"best_of": 5},
        {"presence_penalty": 1}, {"logit_bias": {"1": 1}}, {"model": "another"},
        {"memory": "../../etc"}, {"memory": "base/../x"}, {"memory": "a" * 65},
        {"prompt": [[1, 10**9]]}, {"prompt": [1, "a"]}, {"prompt": []}, {"prompt": [[]]},
        {"prompt": [-1]}, {"prompt": ["a"] * 1000}, {"stream_options": {"include_usage": True}},
        {"prompt": "\ud800"},
    ),
    "/v1/suggest": ({"n": 0}, {"n": -5}, {"n": 10**6}, {"memory": ".hidden"}),
    "/v1/explain": ({"n": 0}, {"n": 10**6}, {"memory": "a b"}),
    "/v1/rank": ({"alternatives": []}, {"prior": [0.5]}, {"memory": "/"}),
    "/v1/documents": ({"text": ""}, {"text": " \n"}, {"memory": "a/b"}, {"text": "\ud800"}),
    "/v1/feedback": ({"memory": "a/b"},),
    "/v1/block": ({"words": ["two words"]}, {"words": [""]}, {"memory": "?"}),
    "/detokenize": ({"tokens": [10**9]}, {"tokens": [-1]}),
}  # fmt: skip
METHODS = ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "FETCH")


def malformed(seed: int) -> bytes:
    """Return a whole HTTP request that no server may answer well."""
    draw = random.Random(seed)
    path = draw.choice([*BODIES])
    right = json.dumps(BODIES[path]).encode()
    match draw.randrange(9):
        case 0:  # a cut
            return request(path, right[: draw.randrange(1, len(right))])
        case 1:  # a byte that is in no text
            place = right.index(b":") + 1
            return request(path, right[:place] + bytes([draw.randrange(128, 256)]) + right[place:])
        case 2:
            no_object = (b"[]", b"[{}]", b"1", b"null", b'"a"', b"NaN", b"{]", b"[" * 50_000)
            return request(path, draw.choice(no_object))
        case 3:  # another type
            name = draw.choice([*BODIES[path]])
            return request(
                path, json.dumps({**BODIES[path], name: draw.choice(OF_NO_FIELD)}).encode()
            )
        case 4:
            path = draw.choice([*OUT_OF_RANGE])
            change = draw.choice(OUT_OF_RANGE[path])
            return request(path, json.dumps({**BODIES[path], **change}).encode())
        case 5:  # a path that the server does not have
            letters = "".join(draw.choices("abc/._%-", k=draw.randrange(1, 40)))
            return request(f"/v1/{letters}x", right)
        case 6:
            method = draw.choice([one for one in METHODS if one not in _allowed(path)])
            return request(path, right, method=method)
        case 7:  # a name that is not the server's
            host = draw.choice(["evil.example", "127.0.0.1.evil.example", "[::", "a" * 300, "@"])
            return request(path, right, host=host)
        case _:
            return _no_http(draw, right)


def _allowed(path: str) -> tuple[str, ...]:
    """Return the methods other than POST that a path takes."""
    if path in ("/v1/documents", "/v1/block"):
        return ("GET", "HEAD", "PUT", "DELETE")
    return ()


def request(
    path: str, body: bytes, *, method: str = "POST", host: str = "localhost", length: str = ""
) -> bytes:
    """Return the bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += f"Content-Length: {length or len(body)}\r\n\r\n"
    return head.encode() + body


def _no_http(draw: random.Random, body: bytes) -> bytes:
    """Return bytes that are no request of HTTP."""
    path = draw.choice([*BODIES])
    line = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
    lines = (
        draw.randbytes(draw.randrange(8, 200)).replace(b"\n", b".") + b"\r\n\r\n",
        b"POST\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        request(path, body, length="-5"),
        request(path, body, length="many"),
        line.encode() + b"no colon here\r\n\r\n",
        line.encode() + b"X: " + b"a" * 70_000,
        line.encode() + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        line.encode() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    )
    return draw.choice(lines)


def answer_to(served: Served, sent: bytes) -> tuple[int, bytes]:
    """Return status and body of the answer to some bytes; status 0 if there is none."""
    host, _, port = served.address.removeprefix("http://").partition(":")
    method = "HEAD" if sent.startswith(b"HEAD ") else "POST"
    with socket.create_connection((host, int(port)), timeout=60) as one:
        with suppress(ConnectionError):
            one.sendall(sent)
        answer = HTTPResponse(one, method=method)
        try:
            answer.begin()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            return 0, b""
        finally:
            answer.close()


def defect_of(status: int, body: bytes, *, headers_only: bool = False) -> str:
    """Return what is wrong with the answer to a malformed request; "" if it is one 4xx line."""
    if not 400 <= status < 500:
        return f"status {status}: {body[:200]!r}"
    if headers_only:
        return "" if not body else f"a body after HEAD: {body[:200]!r}"
    try:
        line = json.loads(body)["error"]["message"]
    except ValueError:
        line = body.decode(errors="replace")  # of the parser of HTTP, which knows no JSON
    if not line.strip() or "\n" in line.strip() or "Traceback" in line:
        return f"not one line: {line[:200]!r}"
    return ""


def malformed_requests(folder: Path, count: int, clock: Clock = FOREVER) -> Case:
    """Send malformed requests; after some of them a right one must have the answer of before."""
    case = Case()
    statuses: dict[int, int] = {}
    with forked(folder) as served:
        served.post("/v1/documents", text=NOTES, name="notes")
        right = served.post("/v1/suggest", prefix="The function ", n=3)
        for seed in range(count):
            if clock.over():
                break
            sent = malformed(seed)
            status, body = answer_to(served, sent)
            defect = defect_of(status, body, headers_only=sent.startswith(b"HEAD "))
            if seed % LOOK == LOOK - 1 or seed == count - 1:
                if served.post("/v1/suggest", prefix="The function ", n=3) != right:
                    defect = defect or "a right question has another answer"
                listed = served.ask("/v1/documents")[1]["documents"]
                if [one["name"] for one in listed] != ["notes"]:
                    defect = defect or f"documents were changed: {listed}"
            statuses[status] = statuses.get(status, 0) + 1
            case.count(f"seed {seed}: {defect}" if defect else "")
        if served.end() != 0:
            case.defects.append("the server did not end well")
        if "Traceback" in served.log.read_text():
            case.defects.append("a traceback in the log")
    case.note = ", ".join(
        f"{number:,} times {status}" for status, number in sorted(statuses.items())
    )
    return case


# Clients at once

Question = Callable[[Served], Any]


def _asking(path: str, **body: Any) -> Question:
    return lambda served: served.post(path, **body)


def questions() -> list[Question]:
    """Return questions that have one right answer each."""
    asked = []
    for prompt in ("The function ", "Call frob", "the list of", "a class", "returns a "):
        completion = {"model": MODEL, "prompt": prompt, "max_tokens": 6, "temperature": 0}
        asked += [
            _asking("/v1/suggest", prefix=prompt, n=3),
            lambda served, body=completion: served.post("/v1/completions", **body)["choices"],
            lambda served, body=completion: served.post(
                "/v1/completions", **body, echo=True, logprobs=1
            )["choices"][0]["text"],
            _asking("/v1/rank", alternatives=["a list", "the war"], before=prompt),
            _asking("/tokenize", prompt=prompt),
        ]
    return asked


def rounded(value: Any) -> Any:
    """Return an answer with its numbers to four digits: sums of another order differ further on."""
    if isinstance(value, float):
        return float(f"{value:.3e}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return value


def resident(process: int) -> int:
    """Return the resident memory of a process, bytes."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024  # type: ignore[index]


@dataclass
class Asking:
    """What clients that ask at once share."""

    served: Served
    expected: list[tuple[Question, Any]]
    end: float
    case: Case = field(default_factory=Case)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, seed: int) -> None:
        """Ask until the time is over."""
        draw = random.Random(seed)
        while time.monotonic() < self.end:
            question, right = draw.choice(self.expected)
            try:
                found = rounded(question(self.served))
                defect = "" if found == right else f"{found} is not {right}"
            except (AssertionError, URLError, OSError, HTTPException) as error:
                defect = f"{type(error).__name__}: {error}"
            with self.lock:
                self.case.count(defect[:300])


def clients_at_once(folder: Path, clients: int, seconds: float) -> Iterator[tuple[str, Case]]:
    """Let clients ask at once; yield how many answers were right, and whether memory grew."""
    with forked(folder) as served:
        served.post("/v1/documents", text=NOTES * 5, name="notes")
        expected = [(question, rounded(question(served))) for question in questions()]
        asking = Asking(served, expected, time.monotonic() + seconds)
        threads = [
            threading.Thread(target=asking.client, args=(seed,), daemon=True)
            for seed in range(clients)
        ]
        for thread in threads:
            thread.start()
        time.sleep(WARM_UP * seconds)
        warm = resident(served.process.pid)
        for thread in threads:
            thread.join()
        last = resident(served.process.pid)
        ended = served.end()
    grown = Case(note=f"{warm / 2**20:.0f} MiB after the warm-up, {last / 2**20:.0f} at the end")
    grown.count("" if last <= GROWTH * warm else f"{grown.note}: more than 5 %")
    grown.count("" if ended == 0 else f"SIGTERM ends with status {ended}")
    asking.case.note = f"{seconds:.0f} s"
    yield f"answers to {clients} clients at once", asking.case
    yield "no leak above 5 %, and a good end", grown


# Kills


def kills(folder: Path, count: int, clock: Clock = FOREVER) -> Case:
    """Kill the server while it learns; at the next start all documents that it took are there."""
    case, kept, unsure = Case(), list[str](), ""
    options = ["--memory", str(folder / "memories")]
    for seed in range(count + 1):
        draw = random.Random(seed)
        with forked(folder, *options) as served:
            if seed:
                case.count(_lost(served, kept, unsure, f"seed {seed}"))
            if seed == count or clock.over():
                served.end()
                break
            kept = _names(served)
            killer = threading.Timer(draw.uniform(0.0, 1.5), served.process.kill)
            killer.start()
            number = 0
            with suppress(URLError, OSError, HTTPException):
                while True:
                    unsure = f"document {seed} {number}"
                    text = f"word{seed}x{number} returns a list of snarks .\n" * draw.randrange(
                        2, 60
                    )
                    status, _ = served.ask(
                        "/v1/documents", {"name": unsure, "text": text, "wait": draw.random() < 0.2}
                    )
                    if status == 200:
                        kept.append(unsure)
                    number += 1
                    time.sleep(PAUSE)
                    if number % 4 == 3 and len(kept) > 6:  # so that the memory stays small
                        name = kept[0]
                        unsure = name
                        if served.ask("/v1/documents", {"name": name}, method="DELETE")[0] == 200:
                            kept.remove(name)
            killer.join()
    return case


def _names(served: Served) -> list[str]:
    listed = served.ask("/v1/documents")[1]["documents"]
    return [one["name"] for one in listed]


def _lost(served: Served, kept: list[str], unsure: str, name: str) -> str:
    """Return what is wrong with the documents after a kill.

    Only the last one, of which the client was told nothing, may be there or not.
    """
    found = _names(served)
    missing = [one for one in kept if one not in found and one != unsure]
    more = [one for one in found if one not in kept and one != unsure]
    if missing or more:
        return f"{name}: missing {missing[:5]}, not expected {more[:5]}"
    words = served.post("/v1/suggest", prefix="word", n=1)["suggestions"]
    return "" if words or not found else f"{name}: documents are listed, and not learned"


def ends(folder: Path, count: int, clock: Clock = FOREVER) -> Case:
    """End the server by SIGTERM while it learns and answers; it says where all is, and all is."""
    case, kept, said = Case(), list[str](), ""
    options = ["--memory", str(folder / "memories")]
    for seed in range(count + 1):
        with forked(folder, *options) as served:
            if seed:
                found = _names(served)
                missing = [one for one in kept if one not in found]
                case.count(said or (f"seed {seed}: missing {missing[:5]}" if missing else ""))
            if seed == count or clock.over():
                break
            for number in range(6):
                name = f"document {seed} {number}"
                text = f"word{seed}x{number} returns a list of snarks .\n" * 10
                served.post("/v1/documents", name=name, text=text, wait=False)
                kept.append(name)
            stream = threading.Thread(target=_long_answer, args=(served,), daemon=True)
            stream.start()
            time.sleep(random.Random(seed).uniform(0.0, 1.0))
            status = served.end()
            stream.join()
            log = served.log.read_text()
            said = ""
            if status or "all that was learned is in" not in log or "Traceback" in log:
                said = f"seed {seed}: status {status}: {log[-300:]}"
    return case


def _long_answer(served: Served) -> None:
    """Ask for an answer that is not finished when the server ends."""
    with suppress(URLError, OSError, HTTPException):
        served.ask("/v1/completions", {"model": MODEL, "prompt": "The ", "max_tokens": 4000})


def asked(
    scratch: Path,
    clock: Clock = FOREVER,
    *,
    requests: int = MALFORMED,
    minutes: float = MINUTES,
) -> Iterator[tuple[str, Case]]:
    """Yield the cases of requests, each with its name."""
    folders = [scratch / name for name in ("malformed", "clients")]
    for folder in folders:
        folder.mkdir(parents=True)
    yield "malformed requests, each one 4xx line", malformed_requests(folders[0], requests, clock)
    yield from clients_at_once(folders[1], CLIENTS, 60 * minutes)


def stopped(
    scratch: Path, clock: Clock = FOREVER, *, killed: int = KILLS, ended: int = ENDS
) -> Iterator[tuple[str, Case]]:
    """Yield the cases of a server that is ended or killed, each with its name."""
    folders = [scratch / name for name in ("ended", "killed")]
    for folder in folders:
        folder.mkdir(parents=True)
    yield "killed with -9 while learning: no document lost", kills(folders[1], killed, clock)
    yield "SIGTERM while learning and answering", ends(folders[0], ended, clock)


ASKED = Group("The server, asked", asked)
STOPPED = Group("The server, ended and killed", stopped)
