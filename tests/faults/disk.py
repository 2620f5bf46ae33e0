"""Disks that are full or cannot be written, and homes that are not there: one line, status 2, old
files intact.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hebblm.errors import UserError
from hebblm.report.result.tokens import Inspection

from .sandbox import FOREVER, WRITERS, Case, Clock, Group, Writer, make_world, run, tree

STRANGER = 54321  # a user id without a home, a name or rights
KEEP_CAPABILITIES, CAPABILITIES_3, READ_ALL = 8, 0x20080522, 1 << 2  # as Linux numbers them
# bytes that a file may have, or pages that a file system has
SIZES = 0, 1, 100, 2_000, 20_000, 200_000


@dataclass
class Attempt:
    """One command in one world that lacks something."""

    writer: Writer
    root: Path  # of the world
    scratch: Path  # an empty folder
    old: Path  # what the command wrote where nothing was lacking
    sizes: tuple[int, ...] = SIZES

    def defect(
        self,
        out: Path,
        environment: dict[str, str | None],
        before: Callable[[], None] = lambda: None,
        *,
        must_fail: bool = False,
    ) -> str:
        """Run the command over what it wrote before, and return what is wrong with its end, or with
        the files.
        """
        expected = tree(out)
        ended = run(self.writer, self.root, out, environment, before)
        wrong = ended.defect()
        if not wrong and must_fail and ended.status == 0:
            wrong = "status 0 although it could not write"
        if not wrong and ended.status == 2:
            found = tree(out)
            changed = [name for name in found if found[name] != expected.get(name)]
            half = [name for name in changed if not whole(out / name)]
            lost = [name for name in expected if name not in found]
            wrong = (
                f"half or lost: {', '.join([*half, *lost][:4])}" if half or lost else _apart(out)
            )
        return f"{self.writer.name}: {wrong}" if wrong else ""

    def folder(self, name: str, *, old: bool) -> Path:
        """Where to write, with what the command wrote before or without."""
        out = self.scratch / name
        shutil.rmtree(out, ignore_errors=True)
        if old and self.old.exists():
            shutil.copytree(self.old, out)
        return out


def whole(path: Path) -> bool:
    """Whether a file is what its kind ought to be, to its end."""
    content = path.read_bytes()
    if path.name.startswith("."):
        return False  # a temporary file that was left
    match path.suffix:
        case ".json":
            return isinstance(json.loads(content), dict)
        case ".parquet":
            return content[:4] == content[-4:] == b"PAR1"
        case ".png":
            return b"IEND" in content[-12:]
        case ".html":
            return content.rstrip().endswith(b"</html>")
        case ".safetensors":
            return 8 + int.from_bytes(content[:8], "little") < len(content)
    return len(content) > 0


def _apart(out: Path) -> str:
    """Why the tables of a result no longer go with it, or nothing."""
    if not ((out / "result.json").is_file() and (out / "tokens.parquet").is_file()):
        return ""
    try:
        Inspection.load(out)
    except UserError as error:
        return f"a result and its tables no longer go together: {error}"
    return ""


def can_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


def full_files(attempt: Attempt, case: Case) -> None:
    """No file may grow beyond some sizes, over an old result and at a new place."""
    for size in attempt.sizes:
        for old in (True, False):
            out = attempt.folder("limited", old=old)
            cache = {"HEBBLM_CACHE": str(attempt.scratch / f"cache-{size}-{old}")}
            case.count(_at(size, attempt.defect(out, cache, lambda size=size: _limit(size))))


def full_device(attempt: Attempt, case: Case) -> None:
    """A file system of a few pages holds output and cache."""
    for size in attempt.sizes:
        device = attempt.scratch / "device"
        device.mkdir(exist_ok=True)
        options = f"size={max(4096, size // 4096 * 4096)},mode=777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", device], check=True)
        try:
            case.count(
                _at(size, attempt.defect(device / "out", {"HEBBLM_CACHE": str(device / "cache")}))
            )
        finally:
            subprocess.run(["umount", device], check=True)


def read_only(attempt: Attempt, case: Case) -> None:
    """Output, or the cache alone, lies on a file system that cannot be written."""
    device = attempt.scratch / "device"
    device.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", device], check=True)
    try:
        if attempt.old.exists():
            shutil.copytree(attempt.old, device / "out")
        subprocess.run(["mount", "-o", "remount,ro", device], check=True)
        fresh = {"HEBBLM_CACHE": str(attempt.scratch / "cache-ro")}
        case.count(attempt.defect(device / "out", fresh))
        case.count(attempt.defect(device / "new", fresh, must_fail=True))
        out = attempt.folder("beside", old=False)
        case.count(attempt.defect(out, {"HEBBLM_CACHE": str(device / "cache")}))
    finally:
        subprocess.run(["umount", device], check=True)


def homeless(attempt: Attempt, case: Case) -> None:
    """A user without rights: the home is another's, is not there, is a file, or HOME is not set."""
    locked, file = attempt.scratch / "locked", attempt.scratch / "file"
    locked.mkdir(mode=0o755, exist_ok=True)
    file.touch()
    for home in (str(locked), "/nonexistent", str(file), "", None):
        out = attempt.scratch / "open" / "out"
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir(parents=True)
        out.parent.chmod(0o777)
        defect = attempt.defect(
            out, {"HOME": home, "HEBBLM_CACHE": None, "XDG_CACHE_HOME": None}, _demote
        )
        case.count(f"HOME={home}: {defect}" if defect else "")


def unwritable(attempt: Attempt, case: Case) -> None:
    """A user without rights writes where others' files are."""
    for old in (True, False):
        out = attempt.folder("others", old=old)
        for folder in (attempt.scratch, out):
            if folder.exists():
                folder.chmod(0o755)
        cache: dict[str, str | None] = {"HEBBLM_CACHE": str(attempt.scratch / "nothing" / "cache")}
        case.count(attempt.defect(out, cache, _demote, must_fail=not old))


def _at(size: int, defect: str) -> str:
    return f"{size} bytes: {defect}" if defect else ""


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _demote() -> None:
    """Become a user who may write nothing of others, but read it: Python itself may lie in the home
    of another.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    asked = struct.pack("=Ii", CAPABILITIES_3, 0)
    if libc.capset(asked, struct.pack("=6I", READ_ALL, READ_ALL, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "cannot give up rights")


WORLDS: dict[str, tuple[Callable[[Attempt, Case], None], bool]] = {
    "a full disk: files no longer than 0 to 200,000 bytes": (full_files, False),
    "a full file system of 4 to 196 KiB": (full_device, True),
    "a read-only file system": (read_only, True),
    "a home that is another's, a file, missing or not named": (homeless, True),
    "a folder of another user": (unwritable, True),
}
"""By name: what is lacking, and whether only the superuser can take it away."""


def cases(
    scratch: Path,
    clock: Clock = FOREVER,
    writers: tuple[Writer, ...] = WRITERS,
    sizes: tuple[int, ...] = SIZES,
) -> Iterator[tuple[str, Case]]:
    """Try every command in every world; yield what came of each world."""
    scratch.chmod(0o755)
    root = scratch / "world"
    make_world(root)
    attempts = []
    for number, writer in enumerate(writers):
        place = scratch / str(number)
        place.mkdir()
        attempt = Attempt(writer, root, place, place / "old", sizes)
        ended = run(writer, root, attempt.old, {"HEBBLM_CACHE": str(place / "cache")})
        assert ended.status == 0, (writer.name, ended)
        attempts.append(attempt)
    for name, (lacking, by_root) in WORLDS.items():
        if by_root and not can_mount():
            continue
        case, commands = Case(), 0
        for attempt in attempts:
            if not clock.over():
                lacking(attempt, case)
                commands += 1
        case.note = f"{commands} commands"
        if case.tried:
            yield name, case


GROUP = Group(
    "Disk",
    cases,
    (
        "a part of a computation on a full disk ended in a traceback",
        "a user without a home folder met a traceback",
        "a run whose first tokens found no neighbour could not be inspected",
    ),
)
