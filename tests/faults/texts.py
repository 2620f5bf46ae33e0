"""Odd texts in every command that reads one, and the text of strangers in every page that is
written.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import string
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.report import Result, write_comparison, write_report
from hebblm.report.render.inspection import inspect_page
from hebblm.report.result.tokens import Inspection
from hebblm.text.prepared import load_prepared
from hebblm.vision.report import write_report as write_vision

from ..unit.report.samples import sample_result, sample_tokens
from ..unit.report.test_tokens import write_parquet
from ..unit.vision.test_report import document
from .sandbox import FOREVER, Case, Clock, Group, Writer, make_world, run

BOUND = 1_536 << 10  # KiB of resident memory
LONG, HUGE = 100 << 20, 1 << 30  # bytes
LINES = "".join(f"the cat {n % 7} sat on the mat {n % 5}\n" for n in range(40))

ODD: dict[str, bytes] = {
    "a byte order mark": b"\xef\xbb\xbf" + LINES.encode(),
    "byte order marks within": LINES.replace("cat", "\ufeffcat").encode(),
    "CR LF": LINES.replace("\n", "\r\n").encode(),
    "CR alone": LINES.replace("\n", "\r").encode(),
    "mixed ends of line": LINES.replace("1\n", "1\r\n").encode(),
    "NUL": LINES.replace("mat", "m\0at \0").encode(),
    "no final newline": LINES.rstrip("\n").encode(),
    "blank lines alone": b"\n" * 40,
    "spaces alone": b"   \t \n" * 40,
    "blank lines among others": LINES.replace("\n", "\n\n\n").encode(),
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u0639\u0644\u064a\u0643\u0645 \u202eabc\u202c "
    "\u2067x\u2069\n".encode()
    * 40,
    "combining marks": ("e\u0301\u0323 " + "z" + "\u0307" * 300 + " \u0301\n").encode() * 40,
    "lone surrogates": LINES.encode() + b"\xed\xa0\x80 \xed\xbf\xbf\n",
    "bytes that are no UTF-8": LINES.encode() + b"\xff\xfe \xc0\x80\n",
    "UTF-16": LINES.encode("utf-16"),
    "cut within a character": LINES.encode() + "é".encode()[:1],
    "separators of lines and paragraphs": LINES.replace(
        "sat", "s\u2028a\u2029t\x85\x0b\x0c\x1c"
    ).encode(),
    "odd spaces": LINES.replace(" ", "\u3000", 3).replace("on", "\u00a0on\u200b").encode(),
    "control characters": LINES.replace("mat", "\x1b[31mm\x07\x08\x7fat").encode(),
    "beyond the basic plane": "👩\u200d👩\u200d👧 𝒳 \U0010ffff \ue000\n".encode() * 40,
    "words of the dictionary": b"<eos> <unk> <pad> <s> </s> <EOS>\n" * 40,
    "words that are numbers": b"0 -1 1e999 nan inf 00 0x1f\n" * 40,
    "markup": b"</script> {{ 7 }} {% x %} ${x} `x` | <b>\n" * 40,
    "a word of a megabyte": b"a" * (1 << 20) + b" b\n" + LINES.encode(),
    "50,000 words in a line": b"a b c d e " * 10_000 + b"\n" + LINES.encode(),
    "nothing": b"",
    "one byte": b"x",
    "one end of line": b"\n",
}
READERS = (
    Writer.of("preprocess", "preprocess --text {root}/odd.txt --output-path {out}"),
    Writer.of("preprocess, lower case", "preprocess --text {root}/odd.txt --normalization lower "
        "--output-path {out}"),
    Writer.of("preprocess, moses", "preprocess --text {root}/odd.txt --tokenizer moses "
        "--output-path {out}"),
    Writer.of("preprocess, sentencepiece",
              "preprocess --text {root}/odd.txt --tokenizer sentencepiece --vocab-size 20 "
              "--output-path {out}"),
    Writer.of("eval", "eval --checkpoint {root}/model --text {root}/odd.txt --max-tokens 200 "
        "--methods lstm,mixture"
              " --log-samples --output-path {out}"),
    Writer.of("read",
    "read {root}/model {root}/odd.txt --set memory.index=exact --k 8 --save {out}"),
    Writer.of("memory build", "memory build --model {root}/model --text {root}/odd.txt "
        "--output-path {out}"),
)  # fmt: skip
READ = Writer.of(
    "read",
    "read {root}/model {root}/odd.txt --method mixture --set memory.capacity=1000 --k 8 --save "
    "{out}",
)
"""Reads a large text: a memory without a bound grows by each token, and each takes a
millisecond.
"""


def words_of(content: bytes) -> Counter[str]:
    """Return the words of a text, read in the plainest way, with how often each occurs."""
    lines = content.decode().removeprefix("\ufeff").split("\n")
    return Counter(word for line in lines for word in line.removesuffix("\r").split())


def lost(folder: Path, content: bytes) -> str:
    """Return which words a prepared text has lost or won, or nothing."""
    found = load_prepared(folder)
    symbols = found.dictionary.symbols
    ids = Counter(symbols[int(i)] for split in found.meta.splits for i in found.tokens(split))
    expected = words_of(content)
    unknown = found.dictionary[found.dictionary.unk_index]
    ends = found.dictionary[found.dictionary.eos_index]
    known = Counter({w: n for w, n in ids.items() if w not in (unknown, ends)})
    kept = Counter({w: n for w, n in expected.items() if w in known and w not in (unknown, ends)})
    return "" if known == kept else f"{list((known - kept) + (kept - known))[:3]!r:.100}"


def odd_texts(
    scratch: Path,
    names: tuple[str, ...] = tuple(ODD),
    readers: tuple[Writer, ...] = READERS,
    clock: Clock = FOREVER,
) -> Iterator[tuple[str, Case]]:
    """Give odd texts to commands that read one."""
    root = scratch / "world"
    make_world(root)
    for reader in readers:
        case, fine = Case(), 0
        for number, name in enumerate(names):
            if clock.over():
                return
            (root / "odd.txt").write_bytes(ODD[name])
            out = scratch / f"{reader.name}-{number}".replace(" ", "-")
            # The longest has 50,000 words, each a millisecond of hebblm-read alone on a core.
            ended = run(reader, root, out, {"HEBBLM_CACHE": str(scratch / "cache")}, patience=1800)
            wrong = ended.defect()
            fine += ended.status == 0
            if not wrong and ended.status == 0 and reader.name == "preprocess":
                wrong = lost(out, ODD[name])
            case.count(f"{name}: {wrong}" if wrong else "")
            shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(scratch / "cache", ignore_errors=True)
        case.note = f"{fine} read, {case.survived - fine} refused in one line"
        yield f"{len(names)} odd texts: {reader.name}", case


def long_line(scratch: Path, size: int = LONG) -> Case:
    """Give a text of one line to every command but those that learn from each token for hours."""
    root, case, most = scratch / "long", Case(), 0
    make_world(root)
    (root / "odd.txt").write_bytes(LINES.encode() + b"word " * (size // 5) + b"\n" + LINES.encode())
    for reader in READERS:
        if reader.module in ("preprocess", "eval"):
            ended = run(
                reader, root, scratch / "long-out", {"HEBBLM_CACHE": str(scratch / "cache")}
            )
            most = max(most, ended.peak)
            wrong = ended.defect() or (f"{ended.peak >> 10} MiB" if ended.peak > BOUND else "")
            case.count(f"{reader.name}: {wrong}" if wrong else "")
            shutil.rmtree(scratch / "long-out", ignore_errors=True)
    case.note = f"at most {most >> 10} MiB resident"
    return case


def large_text(
    scratch: Path, readers: tuple[Writer, ...], letters: range, size: int = HUGE
) -> Case:
    """Give a large text of words of so many letters to some commands."""
    root, case, draw, peaks = scratch / "large", Case(), random.Random(0), []
    make_world(root)
    different = min(20_000, (4 << 20) // letters.stop)  # so that the words themselves take little
    lexicon = [
        "".join(draw.choices(string.ascii_lowercase, k=draw.choice(letters)))
        for _ in range(different)
    ]
    block = "".join(
        " ".join(draw.choices(lexicon, k=12)) + "\n" for _ in range(max(1, different // 12))
    )
    with (root / "odd.txt").open("wb") as stream:
        for _ in range(size // len(block) + 1):
            stream.write(block.encode())
    for reader in readers:
        ended = run(
            reader, root, root / "out", {"HEBBLM_CACHE": str(root / "cache")}, patience=7200
        )
        wrong = ended.defect() or (f"status {ended.status}" if ended.status else "")
        wrong = wrong or (f"{ended.peak >> 10} MiB resident" if ended.peak > BOUND else "")
        case.count(f"{reader.name}: {wrong}" if wrong else "")
        peaks.append(f"{reader.name} {ended.peak >> 10}")
        shutil.rmtree(root / "out", ignore_errors=True)
    case.note = f"MiB resident at most: {', '.join(peaks)}"
    shutil.rmtree(root)
    return case


def text_cases(scratch: Path, clock: Clock) -> Iterator[tuple[str, Case]]:
    """Try odd texts, a long line, and a large text."""
    yield from odd_texts(scratch, clock=clock)
    by_name = {reader.name: reader for reader in READERS}
    both = (by_name["preprocess"], by_name["eval"])
    large = f"{HUGE >> 30} GiB of text"
    for name, read in {
        f"a line of {LONG >> 20} MiB": lambda: long_line(scratch),
        f"{large} in words of 64 KiB": lambda: large_text(
            scratch, (READ,), range(1 << 16, (1 << 16) + 1)
        ),
        f"{large} in words of 4 to 16 letters": lambda: large_text(scratch, both, range(4, 17)),
    }.items():
        if not clock.over():
            yield name, read()


HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{ 7191 * 7193 }}",
    "{% raw %}", "{# x #}",
    "<!--", "-->", "]]>", "<![CDATA[", "</title></style>", "\"><svg onload=alert(1)>",
    "' onmouseover='alert(1)",
    "&lt;b&gt;", "javascript:alert(1)", "${7191*7193}", "<< 7191 * 7193 >>", "<% x %>",
    "\u2028\u2029", "\u202egnp.exe",
    "`x`|a|b\n# h", "[x](javascript:alert(1))", "\\input{/etc/passwd}", "$$\\undefined$$",
    "</textarea>", "\ufeff",
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
    return replace(
        plain, scenario=scenario, provenance={**plain.provenance, "command": word, word: word}
    )


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
    near = {"position": 1, "rank": 0, "from_stream": True, "place": 0, "label": word,
    "distance": 0.5,
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
    plain, evil = (
        {path.name: path for path in page(w, folder / n)} for w, n in (("plain", "a"), (word, "b"))
    )
    for name, path in evil.items():
        if path.suffix == ".png":
            continue
        text = path.read_text(encoding="utf-8")
        if MEANING in text:
            return f"{name}: a template was filled"
        if path.suffix == ".html":
            one, two = Tags(plain[name].read_text(encoding="utf-8")), Tags(text)
            if one.tags != two.tags:
                return (
                    f"{name}: other tags: {list((two.tags - one.tags) + (one.tags - two.tags))[:3]}"
                )
            if (
                " ".join(word.split()) not in " ".join(two.text.split())
                and json.dumps(word)[1:-1] not in two.text
            ):
                return f"{name}: the text is not shown"
        elif path.suffix == ".md" and (
            "\n# h" in text or re.search(r"(?<!\\)<(script|img|svg)", text)
        ):
            return f"{name}: markup"
        elif path.suffix == ".tex" and "\\input" in text:
            return f"{name}: a command"
    return ""


def page_cases(
    scratch: Path, clock: Clock, words: tuple[str, ...] = HOSTILE
) -> Iterator[tuple[str, Case]]:
    for number, (name, page) in enumerate(PAGES.items()):
        case = Case()
        for at, word in enumerate(words if not clock.over() else ()):
            try:
                wrong = defect(page, word, scratch / f"{number}-{at}")
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            case.count(f"{word!r}: {wrong}" if wrong else "")
        yield name, case


TEXTS = Group(
    "Texts",
    text_cases,
    (
        "`hebblm-read` held a whole text in memory",
        "the build of a memory cut words of long lines in two, and took a lone carriage return for "
        "an end of line",
    ),
)
MARKUP = Group(
    "Text of strangers in pages",
    page_cases,
    ("a name with dollars in it was read as a formula by the plots",),
)
