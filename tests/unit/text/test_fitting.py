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


def test_plain_prose_is_split_at_punctuation_for_a_model_of_tokenised_text(prose: Path) -> None:
    fit = fitting(prose, WhitespaceTokenizer(), KNOWN, "raw")
    assert fit.tokenizer.tokenize("no reason, he said.") == ["no", "reason", ",", "he", "said", "."]
    assert "0.0 % of its tokens are unknown" in fit.reason
    assert "50.0 % if it is split at blanks alone" in fit.reason


def test_what_is_tokenised_or_asked_for_stays(prose: Path, tmp_path: Path) -> None:
    assert (
        fitting(prose, WhitespaceTokenizer(), KNOWN, "raw", "whitespace").tokenizer == WhitespaceTokenizer()
    )
    assert fitting(prose, WhitespaceTokenizer(), KNOWN, "raw", "moses").tokenizer == MosesTokenizer()
    assert fitting(prose, MosesTokenizer(), KNOWN, "raw").tokenizer == MosesTokenizer()
    tokenised = tmp_path / "tokenised.txt"
    tokenised.write_text("no reason , he said . it was another end .\n" * 20)
    fit = fitting(tokenised, WhitespaceTokenizer(), KNOWN, "raw")
    assert (fit.tokenizer, fit.reason) == (WhitespaceTokenizer(), "")
