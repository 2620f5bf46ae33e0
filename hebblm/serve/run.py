"""Starting and ending the server."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from hebblm.errors import UserError, reason
from hebblm.serve.config import ServeOptions

GRACE = 10  # seconds that answers have to end when the server ends
BACKLOG = 128


class _Server(uvicorn.Server):
    """A server that says when it is ready, and ends well on SIGTERM and Ctrl-C.

    Args:
        config: of uvicorn.
        ready: called when it listens.
        ending: called on the first signal to end.
    """

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready, self._ending = ready, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle both signals in the block; uvicorn itself would raise them again afterwards."""

        def handle(number: int, frame: object) -> None:
            self._ending()
            self.should_exit = True

        before = {
            number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(options: ServeOptions) -> socket.socket:
    """Return a socket that listens where the options say.

    Raises:
        UserError: the address is taken, or none of this machine's.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UserError(
            f"cannot listen on {options.host}:{options.port}: {reason(error)}; choose another "
            "`port`"
        ) from error


def run(
    app: ASGIApp,
    listening: socket.socket,
    ready: Callable[[], None],
    ending: Callable[[], None],
) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    Args:
        app: answers.
        listening: where requests come from.
        ready: called when the server listens.
        ending: called on the first signal to end.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=1 << 16,
        ws="none",
        lifespan="on",
    )
    asyncio.run(_Server(config, ready, ending).serve([listening]))
