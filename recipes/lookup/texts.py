"""The texts of the prompts: some choose values, the others report.

None of them needs a network. Those of corpora come from ``HEBBLM_DATA``, German and French from the
messages of programs that a Debian system has.
"""

from __future__ import annotations

import gettext
import inspect
import re
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hebblm.errors import UserError
from hebblm.text.corpora import resolve
from recipes.lookup import invented
from recipes.lookup.prompts import Prompt, parts, prompts

NOTES = Path(__file__).parent / "texts" / "notes.txt"
MESSAGES = Path("/usr/share/locale")
PAGES = ("predict", "memory", "words")
PAGES_AT = "f66f1d81"  # the commit whose pages are read, so that they stay the same
MOST = 14_000  # characters of a text; the notes have 15,698
PROSE_WORDS = 20  # the fewest of a line of prose
SENTENCE = re.compile(r"(?<= [.?!]) (?=[A-Z<])")  # between two


class Text(NamedTuple):
    """What is learned, and what is asked for afterwards."""

    learned: str
    asked: str

    def prompts(self, count: int | None = None) -> list[Prompt]:
        """Return the prompts of what is asked for."""
        return prompts(self.asked, count)


def cut(text: str) -> str:
    """Return the beginning of a text, up to a paragraph's or line's end."""
    text = text[:MOST]
    between = "\n\n" if "\n\n" in text else "\n"
    return text[: text.rindex(between)] if len(text) == MOST else text


def prose(corpus: str, split: str) -> str:
    """Return the first paragraphs of a corpus, each sentence a line."""
    lines = (
        line.strip() for line in resolve(corpus).lines(split) if len(line.split()) >= PROSE_WORDS
    )
    return cut("\n\n".join(SENTENCE.sub("\n", line) for line in lines))


def code(folder: Path) -> str:
    """Return the beginning of the Python files of a folder."""
    return cut(
        "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))[1:])
    )


def documented(module: object) -> str:
    """Return the beginning of a module's docstrings."""
    members = (getattr(module, name) for name in sorted(module.__all__))  # type: ignore[attr-defined]
    return cut("\n\n".join(inspect.getdoc(member) or "" for member in members))


def pages() -> str:
    """Return three pages of this project's documentation."""
    names = [f"{PAGES_AT}:docs/{page}.md" for page in PAGES]
    run = subprocess.run(
        ["git", "show", *names], cwd=Path(__file__).parent, capture_output=True, check=False
    )
    if run.returncode:
        raise UserError(f"commit {PAGES_AT} is not in this clone; fetch the whole history")
    return cut(run.stdout.decode())


def translated(language: str, program: str) -> str:
    """Return the beginning of a program's longer messages in a language."""
    path = MESSAGES / language / "LC_MESSAGES" / f"{program}.mo"
    if not path.is_file():
        raise UserError(
            f"{path} is missing; install {program} with its messages, or leave this text out"
        )
    with path.open("rb") as file:
        messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    lines = sorted({" ".join(text.split()) for text in messages.values() if isinstance(text, str)})
    return cut("\n".join(line for line in lines if 8 <= len(line.split()) <= 60))


def _parted(text: Callable[[], str]) -> Callable[[], Text]:
    return lambda: Text(*parts(text()))


def _other(read: Callable[[], str], asked: Callable[[], str]) -> Callable[[], Text]:
    return lambda: Text(parts(read())[0], parts(asked())[1])


def _council() -> str:
    return invented.minutes(invented.COUNCIL, 1, 22)


def _notes() -> str:
    return NOTES.read_text(encoding="utf-8")


CHOOSING: dict[str, Callable[[], Text]] = {
    "council minutes": _parted(_council),
    "server log": _parted(lambda: invented.log(invented.SERVER, 2, 130)),
    "asyncio code": _parted(lambda: code(Path(sysconfig.get_paths()["stdlib"], "asyncio"))),
    "linear algebra docs": _parted(lambda: documented(np.linalg)),
    "news": _parted(lambda: prose("ptb", "valid")),
    "German messages": _parted(lambda: translated("de", "coreutils")),
    "articles after minutes": _other(_council, lambda: prose("wt2", "valid")),
}
"""Texts that values are chosen on."""
REPORTING: dict[str, Callable[[], Text]] = {
    "notes": _parted(_notes),
    "ward minutes": _parted(lambda: invented.minutes(invented.WARD, 3, 22)),
    "build log": _parted(lambda: invented.log(invented.BUILD, 4, 130)),
    "unittest code": _parted(lambda: code(Path(sysconfig.get_paths()["stdlib"], "unittest"))),
    "pages": _parted(pages),
    "articles": _parted(lambda: prose("wt2", "test")),
    "French messages": _parted(lambda: translated("fr", "gnupg2")),
    "news after notes": _other(_notes, lambda: prose("ptb", "test")),
}
"""Texts that results are reported on."""
TEXTS = CHOOSING | REPORTING
