from __future__ import annotations

import re

import pytest

from hebblm.runtime import progress
from hebblm.runtime.progress import QUIET, bar, duration, log, passing_bar, silence, track


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 seconds"), (119, "119 seconds"), (120, "2 minutes"), (2.6e6, "30 days")],
)
def test_a_duration_reads_in_the_largest_unit_that_gives_two(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_line_is_broken_between_words_where_the_columns_are_known_and_stays_whole_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"  train: {'many words ' * 12}in /a/{'long/' * 20}path and more"
    log(line)
    assert capsys.readouterr().err == f"{line}\n"
    monkeypatch.setenv("COLUMNS", "80")
    log(line)
    told = capsys.readouterr().err
    assert told.split() == line.split()
    assert [len(part) > 80 for part in told.splitlines()] == [False, False, True, False]
    assert all(part.startswith("    ") for part in told.splitlines()[1:])


def test_who_asks_for_quiet_is_told_warnings_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEBBLM_QUIET", "1")
    log("a model is loaded")
    log("warning: it fits badly")
    assert list(track([1, 2], "count", 2)) == [1, 2]
    assert capsys.readouterr().err == "warning: it fits badly\n"


class Clock:
    """Stands in for the module ``time``."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_a_log_has_a_line_a_minute_with_an_estimate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with bar() as shown:
        task = shown.add_task("read [x] test", total=9000, unit="tokens", completed=1000)
        for _ in range(5):
            clock.now += QUIET / 2
            shown.advance(task, 1000)
        clock.now += QUIET
        shown.update(task, completed=9000)
    lines = [line for line in capsys.readouterr().err.splitlines() if " of " in line]
    assert lines == [
        "read [x] test: 3,000 of 9,000 tokens, 60 seconds elapsed, 3 minutes left",
        "read [x] test: 5,000 of 9,000 tokens, 2 minutes elapsed, 2 minutes left",
    ]


def test_what_an_earlier_run_had_done_hastens_no_estimate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with bar() as shown:
        task = shown.add_task("read", total=9000, unit="tokens")
        for done in (5000, 1000):
            shown.advance(task, done)
            clock.now += QUIET
        shown.advance(task, 1000)
    assert (
        "read: 7,000 of 9,000 tokens, 2 minutes elapsed, 2 minutes left\n"
        in capsys.readouterr().err
    )


def test_a_narrow_terminal_cuts_the_description_and_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("FORCE_COLOR", "1"),
        ("NO_COLOR", "1"),
        ("TERM", "xterm"),
        ("COLUMNS", "69"),
    ):
        monkeypatch.setenv(name, value)
    with bar() as shown:
        task = shown.add_task(
            "evaluate a text of one's own with sixteen methods", total=245_569, unit="tokens"
        )
        shown.update(task, completed=245_569)
    last = (
        re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "", capsys.readouterr().err)
        .strip()
        .splitlines()[-1]
        .strip()
    )
    last = last.rpartition("\r")[2]
    assert len(last) <= 69
    assert last.startswith("evaluate")
    assert "…" in last
    assert re.search(r" 245569/245569 tokens 0:00:0\d elapsed, 0:00:00 left$", last)


def test_a_bar_is_not_interrupted_by_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes what it writes to for a terminal
    with bar() as shown:
        task = shown.add_task("count", total=3, unit="kB")
        clock.now += 2 * QUIET
        shown.advance(task)
    written = capsys.readouterr().err
    assert "count" in written
    assert "count: 1" not in written
    monkeypatch.delenv("FORCE_COLOR")
    with bar() as shown:
        task = shown.add_task("count", total=None, unit="kB")
        clock.now += QUIET
        shown.advance(task, 7)
    assert "count: 7 kB, 60 seconds elapsed\n" in capsys.readouterr().err, (
        "a log tells of work of unknown length too"
    )


def test_work_of_unknown_length_has_neither_a_total_nor_a_time_left(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    with bar() as shown:
        shown.advance(shown.add_task("count", total=None, unit="lines"), 12_076)
    last = capsys.readouterr().err.rpartition("\x1b[2K")[2]
    assert re.search(r" 12076 lines 0:00:00 elapsed\s*$", last.partition("\n")[0]), last


def test_work_of_a_moment_leaves_no_line(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in (0.1, 2.0):
        with bar(passing=True) as shown:
            task = shown.add_task("count", total=3, unit="kB")
            clock.now += seconds
            shown.advance(task, 3)
        assert ("count" in capsys.readouterr().err) == (seconds > 1)


def test_work_that_nobody_follows_has_a_bar_on_a_terminal_alone(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> bool:
        with passing_bar("read", "tokens") as moved:
            clock.now += 2
            moved(50, 300)
        return "50/300 tokens" in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert not shown(), "this is no terminal"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    assert shown()
    with silence():
        assert not shown()
    with bar(), passing_bar("read", "tokens") as moved:
        moved(7, 900)
    assert "900" not in capsys.readouterr().err, "another bar is shown"
    assert shown(), "it has ended"
    monkeypatch.setenv("HEBBLM_QUIET", "1")
    assert not shown()
