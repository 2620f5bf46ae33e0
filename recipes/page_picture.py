"""Draw the picture of the server's page in README: a real server, a real model, a real browser.

Usage: python -m recipes.page_picture [--model tiny-pydoc-raw] [--output-path docs/serve.png]
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from hebblm.cli.common import options, print_line
from tests.support import browser, served

PROG = "python -m recipes.page_picture"
WIDTH, HEIGHT = 1200, 612
COLOURS = 48  # of the picture, so that it stays small
PATIENCE = 900.0  # seconds for what the page shows
NAME = "orbit.txt"
NOTES = """\
Kestrel is a package for orbits .
The class Orbit returns a list of passes .
Call the function kestrel.track with an orbit and a station .
The function kestrel.track raises NoSignal if the station is closed .
If you catch NoSignal , call the function kestrel.track again .
"""
TYPED = "The orbit is new , so call the function "
"""A package that no model knows, and the beginning of a line about it."""
ADD = "add([new File([{notes!r}], {name!r})]).then(() => 1)"
READY = (
    "document.querySelectorAll('#adapted li').length === 5 && ghost && "
    "document.getElementById('perplexity').innerText.includes('without')"
)
WHY = "document.querySelector('.why') !== null"


@dataclass(frozen=True, kw_only=True)
class PictureConfig:
    """Options of the picture.

    Args:
        model: that the server answers with.
        output_path: file of the picture.
    """

    model: str = "tiny-pydoc-raw"
    output_path: Path = Path("docs/serve.png")


@options(PROG, PictureConfig, f"{PROG} --output-path docs/serve.png")
def main(config: PictureConfig, argv: list[str]) -> None:
    """Draw the page of the server."""
    browser.WAIT = served.START = PATIENCE
    with (
        tempfile.TemporaryDirectory() as folder,
        served.serving(Path(folder), config.model) as server,
        browser.browsing(Path(folder), WIDTH, HEIGHT) as page,
    ):
        light = {"name": "prefers-color-scheme", "value": "light"}
        page.call("Emulation.setEmulatedMedia", features=[light])
        page.open(server.address)
        page.until("model !== ''")
        page.value(ADD.format(notes=NOTES, name=NAME))
        page.value("document.documentElement.style.overflow = 'hidden'")
        page.value("document.getElementById('text').style.height = '6rem'")
        page.value("document.getElementById('ghost').style.height = '6rem'")
        page.value("document.getElementById('text').focus()")
        page.type(TYPED)
        page.until(READY)
        page.value("document.querySelectorAll('#adapted li button')[1].click()")
        page.until(WHY)
        print_line(page.value("document.body.innerText"))
        page.picture(config.output_path)
    with Image.open(config.output_path) as picture:
        small = picture.convert("RGB").quantize(COLOURS)
    small.save(config.output_path, optimize=True)
    print_line(f"{config.output_path} has {config.output_path.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
