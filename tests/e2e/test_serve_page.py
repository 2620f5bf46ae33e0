"""The page of the server in a real browser, by keyboard alone."""
# ruff: noqa: E402  (what follows importorskip needs what it asks for)

from __future__ import annotations

from pathlib import Path

import pytest

for needed in ("starlette", "uvicorn", "sse_starlette", "prometheus_client"):
    pytest.importorskip(needed)

from ..support.browser import CTRL, browsing
from ..support.served import serving

NOTES = "Call frobnitz with two arguments .\n" * 6
ADD = "add([new File([{notes!r}], 'notes.txt')]).then(() => 1)"
TEXT = "document.getElementById('text')"
GHOST = "ghost"


@pytest.mark.slow
def test_a_person_types_accepts_asks_why_and_blocks(tmp_path: Path) -> None:
    with serving(tmp_path, "tiny-pydoc-raw") as served, browsing(tmp_path, 400, 900) as page:
        page.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
        page.open(served.address)
        page.until("model")
        assert page.value("document.activeElement.id") == "text"
        assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(22, 22, 22)"
        page.value(ADD.format(notes=NOTES))
        page.until("document.getElementById('documents').innerText.includes('notes.txt')")

        page.value(f"{TEXT}.focus()")
        page.type("Call")
        page.until(GHOST)
        assert page.value(GHOST).startswith(" frobnitz with")
        assert page.value("document.getElementById('ghost').innerText").startswith("Call frobnitz")
        page.press("ArrowRight", CTRL)
        assert page.value(f"{TEXT}.value") == "Call "
        page.press("Tab")
        assert page.value(f"{TEXT}.value") == "Call frobnitz"
        assert page.value("document.activeElement.id") == "text"
        page.press("Escape")
        assert page.value(GHOST) == ""
        page.press("Tab")  # without a continuation it moves on, as everywhere
        assert page.value("document.activeElement.id") != "text"

        page.value(f"{TEXT}.focus()")
        page.type(" with two ")
        page.until("document.querySelector('#adapted li button').innerText === 'arguments'")
        page.until("document.getElementById('perplexity').innerText.includes('without it')")
        assert page.value("document.querySelectorAll('#base li').length") == 5
        page.value("document.querySelectorAll('#adapted li button')[1].click()")
        page.until("document.querySelector('.why')?.innerText.includes('notes.txt')")
        page.value("document.querySelectorAll('#adapted li button')[2].click()")
        page.until("document.getElementById('blocked').innerText.includes('arguments')")
        page.until("document.querySelector('#adapted li button').innerText !== 'arguments'")

        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.value(width) == 0
        buttons = "[...document.querySelectorAll('button, input')]"
        assert page.value(f"{buttons}.every(one => one.tabIndex >= 0)")
        page.value("document.querySelector('#documents button').click()")
        page.until("document.querySelectorAll('#documents li').length === 0")
        elsewhere = [one for one in page.requested() if not one.startswith(served.address)]
        assert elsewhere == []


@pytest.mark.slow
def test_text_from_a_document_is_shown_and_never_run(tmp_path: Path) -> None:
    with serving(tmp_path, "tiny-pydoc-raw") as served, browsing(tmp_path) as page:
        evil = "<img src=x onerror=hacked=1> Call <b>frobnitz</b> now .\n" * 4
        served.post("/v1/documents", text=evil, name="<img src=x onerror=hacked=1>")
        page.open(served.address)
        page.until("document.getElementById('documents').innerText.includes('onerror')")
        page.value(f"{TEXT}.focus()")
        page.type("Call ")
        page.until("document.querySelector('#adapted li button') !== null")
        page.value("document.querySelectorAll('#adapted li button')[1].click()")
        page.until("document.querySelector('.why') !== null")
        assert page.value("typeof hacked") == "undefined"
        assert page.value("document.images.length") == 0


@pytest.mark.slow
def test_the_grey_text_begins_with_the_first_word_of_the_list(tmp_path: Path) -> None:
    """Forms of a word add up in the list, while a completion takes the most probable token."""
    ends = ("quux;", "quux,", "quux:", "quux?", "blip", "blip")
    with serving(tmp_path, "tiny-pydoc-raw") as served, browsing(tmp_path) as page:
        notes = "".join(f"we met {end} and\n" for end in ends) * 2
        served.post("/v1/documents", text=notes, name="met")
        asked = {"prompt": "we met ", "max_tokens": 1, "temperature": 0}
        drawn = served.post("/v1/completions", **asked)
        assert drawn["choices"][0]["text"] == "blip"
        page.open(served.address)
        page.until("model")
        page.value(f"{TEXT}.focus()")
        page.type("we met ")
        page.until(GHOST)
        assert page.value("document.querySelector('#adapted li button').innerText") == "quux"
        assert page.value(GHOST).startswith("quux")
