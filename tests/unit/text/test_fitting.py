from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hebblm.text.dictionary import Dictionary
from hebblm.text.fitting import fitting
from hebblm.text.tokenizers import MosesTokenizer, WhitespaceTokenizer

KNOWN = Dictionary.vocabulary(Counter(["no", "reason", ",", "he", "said", ".", "it", "was", "the", "end"]))


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text("no reason, he said.\nit was, he said, the end.\n" * 20)
    return path


def test_plain_prose_is_split_at_punctuation_for_a_model_of_tokenised_text(
    prose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fitting(prose, WhitespaceTokenizer(), KNOWN, "raw")
    assert found.tokenize("no reason, he said.") == ["no", "reason", ",", "he", "said", "."]
    told = capsys.readouterr().err
    assert "0.0 % of its tokens are unknown" in told
    assert "50.0 % if it is split at blanks alone" in told


def test_what_is_tokenised_or_asked_for_stays(
    prose: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fitting(prose, WhitespaceTokenizer(), KNOWN, "raw", "whitespace") == WhitespaceTokenizer()
    assert fitting(prose, WhitespaceTokenizer(), KNOWN, "raw", "moses") == MosesTokenizer()
    assert fitting(prose, MosesTokenizer(), KNOWN, "raw") == MosesTokenizer()
    tokenised = tmp_path / "tokenised.txt"
    tokenised.write_text("no reason , he said . it was another end .\n" * 20)
    assert fitting(tokenised, WhitespaceTokenizer(), KNOWN, "raw") == WhitespaceTokenizer()
    assert capsys.readouterr().err == ""
