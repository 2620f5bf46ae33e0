"""The list of corpora is complete, and a damaged one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.text import manifest
from hebblm.text.manifest import SPLITS, load_manifest


def test_the_named_corpora_and_their_published_counts() -> None:
    corpora = load_manifest()
    assert set(corpora) == {"ptb", "wt2", "pydoc", "numpy"}
    counts = {name: [corpora[name].files[split].tokens for split in SPLITS] for name in ("ptb", "wt2")}
    assert counts == {"ptb": [929_589, 73_760, 82_430], "wt2": [2_088_628, 217_646, 245_569]}
    assert (corpora["ptb"].types, corpora["wt2"].types) == (10_000, 33_278)
    for corpus in corpora.values():
        assert corpus.licence
        assert corpus.citation
        for file in corpus.files.values():
            assert len(file.sha256) == 64
            assert all(url.startswith("https://") for url in file.urls)
            assert file.urls


@pytest.mark.parametrize(
    "document",
    [[], {"schema": "other"}, {"schema": manifest.SCHEMA}, {"schema": manifest.SCHEMA, "corpora": {"x": {}}}],
)
def test_a_damaged_list_is_refused(tmp_path: Path, document: object) -> None:
    (tmp_path / "corpora.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="restore it"):
        load_manifest(tmp_path / "corpora.json")
