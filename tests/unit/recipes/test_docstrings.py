"""The recipe that writes a package's documentation strings as one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.docstrings import main


def test_each_string_stands_once_in_the_order_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "documented_package"
    package.mkdir()
    (package / "__init__.py").write_text('"""The package."""\n')
    (package / "broken.py").write_text("import not_there_at_all\n")
    (package / "test_more.py").write_text('"""A test."""\n')
    (package / "things.py").write_text(
        '"""Things."""\nfrom pathlib import Path\n'
        'class A:\n    """A."""\n    def b(self):\n        """B."""\n    def _c(self):\n        """Hidden."""\n'
        'def z():\n    """Z."""\ndef again():\n    """A."""\ndef _d():\n    """Hidden."""\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    main("documented_package", tmp_path / "text")
    assert (tmp_path / "text").read_text() == "The package.\n\nThings.\n\nA.\n\nB.\n\nZ.\n"
