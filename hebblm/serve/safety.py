"""What every request has to pass: who asks, from where, how much and how often."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hebblm.runtime.progress import log
from hebblm.serve.config import Limits, ServeOptions
from hebblm.serve.errors import ApiError
from hebblm.serve.metrics import Metrics

OPEN = frozenset({"/health", "/"})
"""Paths that need no key: they show nothing that was learned."""
ADDRESSES = 4096  # whose rate is watched at once


class Rates:
    """Requests that each address may send: so many a second, and some at once.

    Args:
        limits: of these.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests, when

    def allows(self, address: str, now: float) -> bool:
        """Return whether one more request may come, and count it."""
        left, then = self._left.pop(address, (float(self._limits.burst), now))
        left = min(float(self._limits.burst), left + (now - then) * self._limits.rate)
        self._left[address] = (max(left - 1, 0.0), now)
        if len(self._left) > ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class Guard:
    """Checks requests, and counts them.

    Args:
        app: answers those that pass.
        options: who may ask.
        metrics: counts.
        routes: paths that are counted by name; all others are counted together.
    """

    def __init__(
        self, app: ASGIApp, options: ServeOptions, metrics: Metrics, routes: frozenset[str]
    ) -> None:
        self._app, self._options, self._metrics, self._routes = app, options, metrics, routes
        self._rates = Rates(options.limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 500
        path: str = scope["path"]
        route = path if path in self._routes else "other"

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                safe = [
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-store"),
                ]
                message["headers"] = [*message.get("headers", ()), *safe]
            await send(message)

        try:
            try:
                self._check(scope, begun)
                body = await self._body(receive)
            except ApiError as error:
                await refuse(counted, error)
                return
            await self._app(scope, _again(body, receive), counted)
        finally:
            seconds = time.monotonic() - begun
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            # no query and no body: the log holds no text
            log(f"{scope['method']} {route} {status} {1000 * seconds:.0f} ms")

    def _check(self, scope: Scope, now: float) -> None:
        """Refuse a request that may not be read.

        Raises:
            ApiError: why.
        """
        headers = {name.decode("latin-1").lower(): value.decode("latin-1")
                   for name, value in scope["headers"]}  # fmt: skip
        client = scope.get("client")
        if not self._rates.allows(client[0] if client else "", now):
            raise ApiError(429, "too many requests; send fewer a second", code="rate_limit")
        host = headers.get("host", "")
        if _name(host) not in self._options.names:
            raise ApiError(
                403,
                f"the server is not called {host!r:.60}; name it as an allowed host at the start",
            )
        self._check_origin(headers, host)
        key = self._options.key
        if key is None or (scope["path"] in OPEN and scope["method"] in ("GET", "HEAD")):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), key.encode())
        if kind.lower() != "bearer" or not right:
            raise ApiError(
                401, "the key is missing or wrong; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
            )  # fmt: skip

    def _check_origin(self, headers: Mapping[str, str], host: str) -> None:
        """Refuse a page from elsewhere, which a browser names."""
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"):
                raise ApiError(
                    403,
                    "a page from elsewhere may not ask; name it as an allowed origin at the start",
                )
            return
        if origin not in self._options.allowed_origins and urlsplit(origin).netloc != host:
            raise ApiError(
                403,
                f"a page from {origin!r:.60} may not ask; name it as an allowed origin at the "
                "start",
            )

    async def _body(self, receive: Receive) -> bytes:
        """Return the whole body, if it is not too long and comes in time."""
        limits, parts, size = self._options.limits, [], 0
        try:
            async with asyncio.timeout(limits.arriving):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "the request was not sent to its end")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limits.body:
                        raise ApiError(413, f"the body has more than {limits.body} bytes")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(408, f"the body did not come in {limits.arriving:g} s") from None


def _name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives a body that has come, then what comes after it."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def refuse(send: Send, error: ApiError) -> None:
    """Send an error."""
    data = json.dumps(error.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    if error.status == 429:
        headers.append((b"retry-after", b"1"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
