from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hebblm.cli.report import main
from hebblm.errors import UserError
from hebblm.evaluation.written_words import spaced
from hebblm.io.files import sha256
from hebblm.report import Result, write_report
from hebblm.report.render.inspection import BLOCK, MAX_PARAGRAPH_TOKENS, inspect_page, shades
from hebblm.report.render.table import source
from hebblm.report.result.tokens import COMPONENTS_FILE, FILES, NEIGHBORS_FILE, Inspection

from .samples import ACCURACY, Page, sample_result, sample_tokens
from .test_tokens import write_parquet

STYLE, SCRIPT = source("inspect.css"), source("inspect.js")
HOSTILE = "<script>alert(1)</script>{{ 7 * 7 }}{% raw %}"
BROWSERS = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome",
    "headless_shell",
)  # fmt: skip


def write_run(folder: Path, count: int = 450, *, neighbors: bool = True) -> Path:
    """Write the three files of a run, with hostile text among its words, labels and contexts."""
    tokens = sample_tokens(count)
    words = tokens.words.astype("<U60")
    words[3], words[5], words[7], words[11] = HOSTILE, "</script>", "<eos>", "{{"
    tokens = replace(tokens, words=words)
    folder.mkdir(parents=True, exist_ok=True)
    sample_result(count).save(folder)
    write_parquet(folder / "tokens.parquet", tokens)
    if neighbors:
        rows = [
            {
                "position": at, "rank": rank, "from_stream": rank > 0,
                "place": at - rank if rank else 812_000,
                "label": HOSTILE if rank else "label", "distance": 0.5 + rank,
                "closeness": 2 / (1 + rank),
                "context": f"{HOSTILE} before {at - rank}",
            }
            for at in range(20) for rank in range(min(at, 3))
        ]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), folder / NEIGHBORS_FILE)
    return folder


def test_every_token_stands_in_the_html_as_it_is(tmp_path: Path) -> None:
    run = Inspection.load(write_run(tmp_path))
    html = inspect_page(run, method="hebb")
    page = Page(html)
    assert page.tokens == ["⏎" if word == "<eos>" else word for word in run.losses.words.tolist()]
    assert page.tokens[3] == HOSTILE
    assert page.tags.count("script") == 2
    assert HOSTILE not in html
    assert html.count("</script>") == 2


def test_shades_are_those_of_the_gains(tmp_path: Path) -> None:
    run = Inspection.load(write_run(tmp_path))
    page = Page(inspect_page(run, method="hebb"))
    gains = run.losses.nll["lstm"] - run.losses.nll["hebb"]
    for shown, gain, oov in zip(page.classes, gains, run.losses.oov, strict=True):
        size = sum(abs(gain) >= bound for bound in (0.05, 0.25, 1.0, 2.5))
        expected = [f"{'g' if gain > 0 else 'l'}{size}"] if size else []
        assert shown.split() == expected + (["o"] if oov else [])
    assert len({name for name in page.classes if name}) > 4
    bounds = np.array([0.0, 0.049, 0.05, -0.05, 1.0, -2.5, np.inf, -np.inf])
    assert shades(bounds) == ["", "", "g1", "l1", "g3", "l4", "g4", "l4"]


def test_infinite_losses_are_no_gain_on_each_other(tmp_path: Path) -> None:
    run = Inspection.load(write_run(tmp_path))
    nll = {name: losses.copy() for name, losses in run.losses.nll.items()}
    nll["lstm"][:2] = np.inf
    nll["hebb"][:1] = np.inf
    run = replace(run, losses=replace(run.losses, nll=nll))
    assert run.gain("hebb")[:2].tolist() == [0.0, np.inf]
    page = Page(inspect_page(run, method="hebb", count=10))
    assert page.data["nll"]["lstm"][:2] == [None, None]
    assert page.data["nll"]["hebb"][1] == round(1000 * nll["hebb"][1])


def test_the_script_gets_losses_counts_and_neighbours(tmp_path: Path) -> None:
    run = Inspection.load(write_run(tmp_path))
    data = Page(inspect_page(run, method="mbpa", count=300)).data
    assert data["chosen"] == "mbpa"
    assert data["methods"][0] == ["lstm", "Base"]
    assert set(data["nll"]) == set(run.result.methods)
    for name, losses in data["nll"].items():
        np.testing.assert_allclose(
            np.asarray(losses) / 1000, run.losses.nll[name][:300], atol=5.1e-4
        )
    assert data["counts"] == run.losses.train_counts[:300].tolist()
    assert data["oov"] == np.flatnonzero(run.losses.oov[:300]).tolist()
    assert data["neighbors"]["0"] == []
    assert data["neighbors"]["9"][1][:5] == [1, 8, HOSTILE, "1.5", "1"]
    assert data["texts"][data["neighbors"]["9"][1][5]] == f"{HOSTILE} before 8"
    assert len(data["texts"]) == len(set(data["texts"]))
    assert "20" not in data["neighbors"]


def write_components(folder: Path, *, mixed: str = "mixture", without: int = 0) -> None:
    """Write what the parts of a mixture and of kNN-LM gave to the first 20 tokens, without some
    first rows.
    """
    rows = [
        {"position": at, "method": method, "component": part, "share": share}
        for at in range(20)
        for method, part, share in (
            (mixed, "base", 0.25),
            (mixed, mixed, 0.75),
            ("knn", "knn", 1.0),
        )
    ]
    kinds = pa.schema(
        {
            "position": pa.int64(),
            "method": pa.string(),
            "component": pa.string(),
            "share": pa.float32(),
        }.items()
    )
    pq.write_table(pa.Table.from_pylist(rows[without:], schema=kinds), folder / COMPONENTS_FILE)


def test_the_page_says_what_each_part_of_a_mixture_gave(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 30)
    write_components(folder)
    run = Inspection.load(folder)
    assert set(run.components) == {"mixture"}, "what is no mixture has one part"
    data = Page(inspect_page(run, count=15)).data
    assert data["components"] == {"mixture": [["Base", [250] * 15], ["Mixture", [750] * 15]]}
    write_components(folder, without=3)
    with pytest.raises(UserError, match="out of place; evaluate again with log_neighbors"):
        Inspection.load(folder)


def test_the_page_needs_nothing_beside_it(tmp_path: Path) -> None:
    html = inspect_page(Inspection.load(write_run(tmp_path)))
    page = Page(html)
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not [
        name
        for name, _ in page.attributes
        if name in ("src", "href", "style") or name.startswith("on")
    ]
    policy = next(
        value
        for name, value in page.attributes
        if name == "content" and value and "default" in value
    )
    for content in (STYLE, SCRIPT):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
        assert f">{content}<" in html
    assert "http" not in STYLE + SCRIPT
    assert "innerHTML" not in SCRIPT
    ids = set(re.findall(r"getElementById\('(\w+)'\)", SCRIPT))
    assert ids == {value for name, value in page.attributes if name == "id"}


def test_the_text_stands_as_it_was_written(tmp_path: Path) -> None:
    text = "Call it (now),\n    then\twait.\n\nDone.\n"
    words = [
        "Call",
        "it",
        "(",
        "now",
        ")",
        ",",
        "\n",
        "then",
        "wait",
        ".",
        "\n",
        "\n",
        "Done",
        ".",
        "\n",
    ]
    written = spaced(text, words)
    assert "".join(written) == text
    assert [len(one) - len(other) for one, other in zip(written, words, strict=True)] == [
        0,
        1,
        1,
        *[0] * 4,
        4,
        1,
        *[0] * 6,
    ]
    assert spaced("Call \u201cit\u201d now", ["Call", '"', "it", '"', "now"])[:2] == [
        "Call",
        ' "',
    ], "another spelling"
    sample = sample_tokens(len(words))
    tokens = ["<eos>" if word == "\n" else word for word in words]
    losses = replace(
        sample, words=np.array(tokens, dtype=object), written=np.array(written, dtype=object)
    )
    page = inspect_page(Inspection(sample_result(len(words)), losses, {}, {}))
    shown = page.partition('data-from="0">')[2].partition("</p>")[0]
    shown = re.sub(r"</?span[^>]*>", "", shown).replace("\u23ce<br>", "\n")
    assert shown == text


def test_long_streams_are_cut_and_laid_out_in_blocks(tmp_path: Path) -> None:
    run = Inspection.load(write_run(tmp_path, 3000, neighbors=False))
    html = inspect_page(run, count=1010)
    page = Page(html)
    assert len(page.tokens) == 1010
    starts = [
        int(str(value).replace(",", "")) for name, value in page.attributes if name == "data-from"
    ]
    words = run.losses.words.tolist()
    assert starts[0] == 0
    for start, end in pairwise(starts):
        assert end - start == MAX_PARAGRAPH_TOKENS or (
            end - start >= BLOCK and words[end - 1] == "<eos>"
        ), "it ends with its line"
    assert "first 1,010 of 3,000 tokens" in html
    assert page.data["neighbors"] == {}
    assert page.data["logged"] is False
    assert len(html) < 1010 * 120 + 20_000


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run")
    assert main(["inspect", str(folder), "--method", "hebb", "--tokens", "50"]) == 0
    page = Page((folder / "inspect.html").read_text(encoding="utf-8"))
    assert (len(page.tokens), page.data["chosen"]) == (50, "hebb")
    assert main(["inspect", str(folder), "--output-path", str(tmp_path / "page.html")]) == 0
    assert (
        Page((tmp_path / "page.html").read_text(encoding="utf-8")).data["chosen"] == "mixture+hebb"
    )
    assert "page.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "spoil", "named"),
    [
        (["--method", "magic"], "", "'magic'"),
        (["--method", "lstm"], "", "'lstm'"),
        (["--tokens", "0"], "", "tokens = 0"),
        ([], "tokens.parquet", "--log-samples"),
        ([], "result.json", "result.json"),
        ([], "other", "one run"),
        ([], "neighbors", "readable parquet"),
        ([], "columns", "'rank'"),
        ([], "position", "position 900"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], spoil: str, named: str
) -> None:
    folder = write_run(tmp_path / "run")
    near = folder / NEIGHBORS_FILE
    match spoil:
        case "tokens.parquet" | "result.json":
            (folder / spoil).unlink()
        case "other":
            write_parquet(folder / "tokens.parquet", sample_tokens(449))
        case "neighbors":
            near.write_bytes(near.read_bytes()[:100])
        case "columns":
            pq.write_table(pq.read_table(near).drop_columns(["rank"]), near)
        case "position":
            table = pq.read_table(near)
            pq.write_table(table.set_column(0, "position", pa.array([900] * len(table))), near)
    assert main(["inspect", str(folder), *arguments]) == 2
    *notes, error = capsys.readouterr().err.strip().splitlines()
    assert named in error
    assert all("is not verified" in note for note in notes)
    assert not (folder / "inspect.html").exists()


@pytest.mark.parametrize("name", ["tokens.parquet", NEIGHBORS_FILE])
def test_a_table_of_another_run_is_refused_by_its_hash(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path)
    files = {path.name: sha256(path) for path in folder.glob("*.parquet")}
    replace(Result.load(folder), extra={FILES: files}).save(folder)
    assert main(["inspect", str(folder)]) == 0
    assert "not verified" not in capsys.readouterr().err
    table = pq.read_table(folder / name)
    pq.write_table(table.take(list(reversed(range(len(table))))), folder / name)
    assert main(["inspect", str(folder)]) == 2
    assert f"{name} is not the file that the result" in capsys.readouterr().err


def browser() -> list[str]:
    """Return the command of a headless browser: ``$HEBBLM_BROWSER``, or the first one on the
    path.
    """
    found = os.environ.get("HEBBLM_BROWSER") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if found is None:
        pytest.skip("no Chromium on the path and none named by HEBBLM_BROWSER")
    return [found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def check_shown(shown: str, written: str) -> None:
    """Check what a browser made of a page whose token 9 was asked for."""
    assert 'data-ready="yes"' in shown
    page, source = Page(shown), Page(written)
    assert page.tokens == source.tokens
    assert [name.removesuffix("at").strip() for name in page.classes] == source.classes
    assert [at for at, name in enumerate(page.classes) if "at" in name.split()] == [9]
    detail = shown[shown.index('<aside id="detail"') : shown.index("</aside>")]
    assert "Mixture+Hebb" in detail
    assert "&lt;script&gt;alert(1)&lt;/script&gt;{{ 7 * 7 }}{% raw %} before 8" in detail
    assert "<script>" not in detail
    assert "What gives Hebb this probability" in detail
    assert re.search(r">Hebb</td><td[^>]*>75\.0</td>", detail)


PHONE = """<script>
function measure(frame) {
  const page = frame.contentDocument.documentElement;
  const boxes = Array.from(page.querySelectorAll('.scroll'));
  const wide = boxes.filter(box => box.scrollWidth > box.clientWidth);
  frame.dataset.found = [
    page.scrollWidth - page.clientWidth,
    wide.length,
    page.innerText.includes('Keys saved')].join(' ');
}
</script>"""


@pytest.mark.slow
def test_a_browser_shades_the_text_and_shows_a_token(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    path = tmp_path / "page.html"
    write_components(folder, mixed="hebb")
    path.write_text(inspect_page(Inspection.load(folder), method="hebb"), encoding="utf-8")
    command = [*browser(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    shown = subprocess.run(
        [*command, f"file://{path}#t=9"], capture_output=True, text=True, timeout=300, check=True
    )
    check_shown(shown.stdout, path.read_text(encoding="utf-8"))
    write_report(Result.load(ACCURACY), tmp_path / "report", formats=("html",))
    pages = [
        page.read_text(encoding="utf-8") for page in (tmp_path / "report" / "report.html", path)
    ]
    frame = '<iframe width="400" onload="measure(this)" srcdoc="{}"></iframe>'
    phone = tmp_path / "phone.html"
    phone.write_text(
        PHONE + "".join(frame.format(escape(page)) for page in pages), encoding="utf-8"
    )
    shown = subprocess.run(
        [*command, f"file://{phone}"], capture_output=True, text=True, timeout=300, check=True
    )
    report, inspected = (
        found.split() for found in re.findall(r'data-found="([^"]*)"', shown.stdout)
    )
    assert (report[0], report[2]) == ("0", "true"), (
        "no wider than a phone, and with what is suggested"
    )
    assert int(report[1]) > 1, "wide tables scroll in boxes of their own"
    assert inspected[0] == "0"
