"""Text of strangers in every page that is written: shown as it is, never markup, a script or a template."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.report import Result, write_comparison, write_report
from hebblm.report.inspection import Inspection, inspect_page
from hebblm.vision.document import write_report as write_vision

from ..unit.report.samples import sample_result, sample_tokens
from ..unit.report.test_tokens import write_parquet
from ..unit.vision.test_document import document
from .figures import Case, Clock

HEADING = "Text of strangers in pages"
MENDED: tuple[str, ...] = ("a name with dollars in it was read as a formula by the plots",)
HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{ 7191 * 7193 }}", "{% raw %}", "{# x #}",
    "<!--", "-->", "]]>", "<![CDATA[", "</title></style>", "\"><svg onload=alert(1)>", "' onmouseover='alert(1)",
    "&lt;b&gt;", "javascript:alert(1)", "${7191*7193}", "<< 7191 * 7193 >>", "<% x %>", "\u2028\u2029", "\u202egnp.exe",
    "`x`|a|b\n# h", "[x](javascript:alert(1))", "\\input{/etc/passwd}", "$$\\undefined$$", "</textarea>", "\ufeff",
    "é\u0301\u0301",
)  # fmt: skip
MEANING = "51724863"  # of the products above, if a template computes them


class Tags(HTMLParser):
    """Counts tags with their attributes' names, and keeps what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[tuple[str, ...]] = Counter()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag, *sorted(name for name, _ in attrs)] += 1

    def handle_data(self, data: str) -> None:
        self.text += data


def result_of(word: str) -> Result:
    """Return a result with a word where a stranger's may stand."""
    plain = sample_result(200)
    scenario = replace(plain.scenario, source=word, target=word)
    return replace(plain, scenario=scenario, provenance={**plain.provenance, "command": word, word: word})


def report(word: str, folder: Path) -> list[Path]:
    """Write the report of one result, with its plots."""
    return write_report(result_of(word), folder)


def comparison(word: str, folder: Path) -> list[Path]:
    """Write results side by side."""
    return write_comparison({"one": result_of(word), f"two {word}": result_of("x")}, folder)


def inspection(word: str, folder: Path) -> list[Path]:
    """Write the page of a run whose words, labels and contexts are a stranger's."""
    tokens = sample_tokens(200)
    words = tokens.words.astype(f"<U{max(60, len(word))}")
    words[3] = words[40] = word
    folder.mkdir(parents=True)
    result_of(word).save(folder)
    write_parquet(folder / "tokens.parquet", replace(tokens, words=words))
    near = {"position": 1, "rank": 0, "from_stream": True, "place": 0, "label": word, "distance": 0.5,
            "closeness": 2.0, "context": word}  # fmt: skip
    pq.write_table(pa.Table.from_pylist([near]), folder / "neighbors.parquet")
    run = replace(Inspection.load(folder), result=result_of(word))
    (folder / "page.html").write_text(inspect_page(run, method="hebb"), encoding="utf-8")
    return [folder / "page.html"]


def vision(word: str, folder: Path) -> list[Path]:
    """Write the report of an image experiment."""
    folder.mkdir(parents=True)
    made: dict[str, Any] = document()
    return write_vision({**made, "data": {"name": word}}, folder)


PAGES: dict[str, Callable[[str, Path], list[Path]]] = {
    "report": report,
    "several results": comparison,
    "a run token by token": inspection,
    "image experiments": vision,
}


def defect(page: Callable[[str, Path], list[Path]], word: str, folder: Path) -> str:
    """Return what a word does to the files of a page beside standing in them, or nothing."""
    plain, evil = ({path.name: path for path in page(w, folder / n)} for w, n in (("plain", "a"), (word, "b")))
    for name, path in evil.items():
        if path.suffix == ".png":
            continue
        text = path.read_text(encoding="utf-8")
        if MEANING in text:
            return f"{name}: a template was filled"
        if path.suffix == ".html":
            one, two = Tags(plain[name].read_text(encoding="utf-8")), Tags(text)
            if one.tags != two.tags:
                return f"{name}: other tags: {list((two.tags - one.tags) + (one.tags - two.tags))[:3]}"
            if " ".join(word.split()) not in " ".join(two.text.split()) and json.dumps(word)[1:-1] not in two.text:
                return f"{name}: the text is not shown"
        elif path.suffix == ".md" and ("\n# h" in text or re.search(r"(?<!\\)<(script|img|svg)", text)):
            return f"{name}: markup"
        elif path.suffix == ".tex" and "\\input" in text:
            return f"{name}: a command"
    return ""


def cases(scratch: Path, clock: Clock, words: tuple[str, ...] = HOSTILE) -> Iterator[tuple[str, Case]]:
    """Write every page with every word."""
    for number, (name, page) in enumerate(PAGES.items()):
        case = Case()
        for at, word in enumerate(words if not clock.over() else ()):
            try:
                wrong = defect(page, word, scratch / f"{number}-{at}")
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            case.count(f"{word!r}: {wrong}" if wrong else "")
        yield name, case
