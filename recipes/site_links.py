"""A hook of mkdocs: pages link to files of the checkout next to docs/, and the site takes those
files along.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = get_plugin_logger(__name__)
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SHARED = ("CONTRIBUTING.md", "CHANGELOG.md")  # pages of the site that stand above docs/
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def on_files(files: Files, config: Any) -> Files:
    """Add the shared pages, and what any page links to outside docs/."""
    for name in SHARED:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    pages = list(files.documentation_pages())
    for file in pages:  # grows: the pages that are taken along have links, too
        for link in LINK.findall(file.content_string):
            target = _target(file.src_uri, link)
            uri = _uri(target)
            if target.is_dir():  # the site has no page for it
                log.warning("%s links to the folder %s; link to a file in it", file.src_uri, link)
            if target.is_file() and files.get_file_from_path(uri) is None:
                files.append(new := File.generated(config, uri, abs_src_path=str(target)))
                pages += [new] if new.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Point each link to the place of its target in the site."""
    here = page.file.src_uri

    def inside(match: re.Match[str]) -> str:
        return posixpath.relpath(_uri(_target(here, match[1])), posixpath.dirname(here) or ".")

    return LINK.sub(inside, markdown)


def _target(page: str, link: str) -> Path:
    """Return the file that a link of a page leads to in the checkout."""
    source = DOCS / page if (DOCS / page).is_file() else ROOT / page
    return (source.parent / link).resolve()


def _uri(target: Path) -> str:
    """Return where a file of the checkout stands in the site: that of docs/ at the top, everything
    else next to it.
    """
    return target.relative_to(DOCS if target.is_relative_to(DOCS) else ROOT).as_posix()
