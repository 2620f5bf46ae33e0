"""Some of what the world does to a command; ``make faults`` tries all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hebblm.files import read_json

from . import disk, numbers, options, pages, run, soak, supply, texts, together, variants
from .figures import Case
from .sandbox import WRITERS

pytestmark = pytest.mark.faults


def assert_survived(case: Case) -> None:
    assert case.tried
    assert not case.defects, case.defects[0]


def test_a_full_or_foreign_disk_leaves_one_line_and_old_files(tmp_path: Path) -> None:
    some = tuple(writer for writer in WRITERS if writer.name in ("preprocess", "report inspect", "memory merge"))
    for _, case in disk.cases(tmp_path, writers=some):
        assert_survived(case)


def test_two_at_once_end_as_one_does(tmp_path: Path) -> None:
    for _, case in together.cases(tmp_path, pairs=2, commands=("memory build",)):
        assert_survived(case)


def test_odd_texts_are_read_as_they_are_or_refused(tmp_path: Path) -> None:
    names = ("a byte order mark", "NUL", "lone surrogates", "combining marks", "blank lines alone", "CR LF")
    for _, case in texts.odd_texts(tmp_path, names, readers=texts.READERS[:1]):
        assert_survived(case)


def test_a_large_text_is_read_in_bounded_memory(tmp_path: Path) -> None:
    assert_survived(texts.large_text(tmp_path, (texts.READ,), range(1 << 16, (1 << 16) + 1), size=4 << 20))


@pytest.mark.parametrize("page", pages.PAGES)
def test_no_page_takes_text_for_markup(page: str, tmp_path: Path) -> None:
    for number, word in enumerate(pages.HOSTILE[:3]):
        assert pages.defect(pages.PAGES[page], word, tmp_path / str(number)) == ""


def test_random_command_lines_end_with_one_line_or_well(tmp_path: Path) -> None:
    assert_survived(options.parsed(tmp_path, 150))
    assert_survived(options.lines(tmp_path, 8))


def test_a_file_of_options_has_nothing_imported_or_run(tmp_path: Path) -> None:
    assert_survived(options.files(tmp_path, 60))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_finite_stays_finite(seed: int) -> None:
    assert numbers.trial(numbers.problem(seed)) in ("finite", "refused", numbers.NOT_FINITE_ITSELF)


def test_a_short_soak_is_flat(tmp_path: Path) -> None:
    for _, case in soak.cases(tmp_path, total=2_500, slower=float("inf")):
        assert_survived(case)


def test_tests_skip_themselves_where_there_is_no_faiss(tmp_path: Path) -> None:
    case, absent = Case(), variants.Variant("FAISS absent", without_faiss=True)
    skipped = variants.count_tests(absent, tmp_path, case, ("tests/unit/memory/test_factory.py",))
    assert_survived(case)
    assert skipped > 0


def test_nothing_asks_the_network_when_it_is_imported() -> None:
    assert_survived(supply.silent_imports())
    assert_survived(supply.network_imports())


def test_the_page_shows_the_figures_that_are_committed() -> None:
    assert f"\n{run.table(read_json(run.RECORD))}\n" in run.PAGE.read_text(encoding="utf-8")
