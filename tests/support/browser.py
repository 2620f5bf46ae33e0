"""A headless Chromium that a test drives through its pipe, by the DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
WAIT = 60.0  # seconds
KEYS = {"Tab": 9, "Escape": 27, "ArrowRight": 39}
CTRL = 2


class Browser:
    """A page in a browser.

    Args:
        reads: descriptor that messages of the browser come from.
        writes: descriptor that messages go to.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0)
        self._left, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Return what a command of the protocol gives."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writes.write(json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.until(f"location.href.startsWith({address!r}) && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        end = time.monotonic() + WAIT
        while not (found := self.value(expression)):
            assert time.monotonic() < end, (expression, self.value("document.body.innerText"))
            time.sleep(0.1)
        return found

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key, and let it go."""
        what = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key],
                "modifiers": modifiers}  # fmt: skip
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **what)
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def picture(self, path: Path) -> None:
        """Write what the page shows as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def requested(self) -> set[str]:
        """Return the addresses that the page has asked for."""
        return {
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        }

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            more = self._reads.read(1 << 16)
            assert more, "the browser ended"
            self._left += more
        first, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe, with numbers that are not those of the browser's own."""
    ends = os.pipe()
    reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in ends)
    for end in ends:
        os.close(end)
    return reads, writes


@contextmanager
def browsing(tmp: Path, width: int = 1000, height: int = 900) -> Iterator[Browser]:
    """Run a browser, or skip the test where there is none."""
    names = (os.environ.get("HEBBLM_BROWSER"), *map(shutil.which, NAMES))
    found = next(filter(None, names), None)
    if found is None:
        pytest.skip("no Chromium on the path and none named by HEBBLM_BROWSER")
    reads, their_writes = _pipe()
    their_reads, writes = _pipe()
    # the browser reads from descriptor 3 and writes to 4
    command = ["bash", "-c", f'exec "$@" 3<&{their_reads} 4>&{their_writes}', "bash", found]
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--remote-debugging-pipe", f"--user-data-dir={tmp / 'profile'}",
        f"--window-size={width},{height}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [*command, *options], pass_fds=(their_reads, their_writes), stderr=subprocess.DEVNULL
    )
    os.close(their_reads)
    os.close(their_writes)
    try:
        browser = Browser(reads, writes)
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=False)  # fmt: skip
        yield browser
    finally:
        process.kill()
        process.wait()
