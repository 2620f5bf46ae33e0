"""Options of the server, and the bounds that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from hebblm.errors import UserError

LEAST_KEY = 16  # characters of a key
MOST_KEY = 4096  # bytes of its file


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may ask for.

    Args:
        body: bytes of a request, at most.
        document: bytes of a document, at most.
        tokens: tokens of an answer, at most.
        choices: answers of one request, prompts times ``n``, at most.
        words: words to suggest, at most.
        top: alternatives listed for each token, at most.
        waiting: requests that are answered or wait, at most; another one gets status 429.
        learning: documents that wait to be learned, at most.
        seconds: time of an answer, at most.
        arriving: seconds within which a request must have arrived.
        rate: requests a second from one address, at most, on average.
        burst: requests of one address that may come at once.
        memories: memories that are open at once.
    """

    body: int = 32 << 20
    document: int = 16 << 20
    tokens: int = 4096
    choices: int = 256
    words: int = 100
    top: int = 100
    waiting: int = 64
    learning: int = 1000
    seconds: float = 600.0
    arriving: float = 30.0
    rate: float = 200.0
    burst: int = 400
    memories: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How the server is reached.

    Args:
        host: address that it listens on.
        port: its port; 0 chooses one that is free.
        key: what clients must send; None for no key.
        allowed_hosts: further names by which clients may call the server.
        allowed_origins: pages from elsewhere that may call it from a browser.
        limits: what clients may ask for.

    Raises:
        UserError: an address that others can reach, without a key.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    key: str | None = None
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise UserError(f"port = {self.port} must lie between 0 and {(1 << 16) - 1}")
        if self.key is None and not is_loopback(self.host):
            raise UserError(
                f"host = {self.host} can be reached by others, who could read your notes; give "
                "clients a key in a file (`api_key_file`), or leave `host` out"
            )

    @property
    def names(self) -> frozenset[str]:
        """Names that a request may give for the server."""
        names = {"localhost", "127.0.0.1", "::1", self.host.lower()}
        names |= {name.lower() for name in self.allowed_hosts}
        return frozenset(names - {"0.0.0.0", "::"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(path: Path) -> str:
    """Return the key in a file.

    Raises:
        UserError: no such file, or a key that is too short.
    """
    try:
        with path.open("rb") as stream:
            key = stream.read(MOST_KEY).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the key in {path} cannot be read ({error}); write one line") from error
    if len(key) < LEAST_KEY or not key.isascii() or any(map(str.isspace, key)):
        raise UserError(
            f"the key in {path} must have at least {LEAST_KEY} letters or digits and no spaces; "
            "for example: openssl rand -hex 24"
        )
    return key
