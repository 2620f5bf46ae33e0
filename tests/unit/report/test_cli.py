from __future__ import annotations

from pathlib import Path

import pytest

from hebblm.cli.report import main, unique_labels

from .samples import sample_result, sample_tokens
from .test_tokens import write_parquet


def test_a_report_lands_beside_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample_result(200).save(tmp_path)
    assert main([str(tmp_path), "--format", "md,csv"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "result.json", "report.md", "comparison.csv", "frequency.csv", "gains.csv",
        "occurrences.csv",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert "Methods on wt2-to-ptb test" in printed


def test_other_edges_come_from_the_token_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample_result(200).save(tmp_path)
    assert main([str(path), "--format", "csv", "--edges", "10,1000"]) == 2
    assert "tokens.parquet" in capsys.readouterr().err
    write_parquet(tmp_path / "tokens.parquet", sample_tokens(200))
    out = tmp_path / "out"
    assert main(["--format", "csv", str(path), "--edges=10,1000", "--output-path", str(out)]) == 0
    assert (
        (out / "frequency.csv")
        .read_text(encoding="utf-8")
        .startswith("Training count,<10,10-1000,>1000,All\n")
    )
    assert (out / "words.csv").exists()


def test_several_results_need_a_common_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = []
    for name, target in (("a", "ptb"), ("b", "wt2")):
        sample_result(150, target=target).save(tmp_path / name)
        names.append(str(tmp_path / name))
    assert main([*names, "--format", "md"]) == 2
    assert "--output-path" in capsys.readouterr().err
    out = tmp_path / "out"
    assert main([*names, "--format", "md,html", "--output-path", str(out)]) == 0
    assert f"open{out / 'scenarios.html'}inabrowser" in "".join(capsys.readouterr().out.split())
    assert {path.relative_to(out).as_posix() for path in out.rglob("*.md")} == {
        "scenarios.md", "wt2-to-ptb-test/report.md", "wt2-test/report.md",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "no result given"),
        (["absent"], "absent"),
        (["{result}", "--format", "pdf"], "'pdf'"),
        (["{result}", "--edges", "5,x"], "frequency edges [5, 'x'] must be"),
        (["{result}", "--plotted", "-1"], "--plotted -1"),
        (["inspect", "absent"], "absent"),
    ],
)
def test_mistakes_end_in_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    path = sample_result(100).save(tmp_path)
    write_parquet(tmp_path / "tokens.parquet", sample_tokens(100))
    assert main([argument.format(result=path) for argument in arguments]) == 2
    *notes, error = capsys.readouterr().err.strip().splitlines()
    assert named in error
    assert all("is not verified" in note for note in notes)
    assert {item.name for item in tmp_path.iterdir()} == {"result.json", "tokens.parquet"}


def test_labels_are_unique(tmp_path: Path) -> None:
    results = [
        sample_result(50),
        sample_result(50),
        sample_result(50),
        sample_result(50, split="valid"),
    ]
    paths = [
        tmp_path / "raw",
        tmp_path / "lower",
        tmp_path / "lower" / "result.json",
        tmp_path / "x",
    ]
    for path in paths:
        if path.suffix != ".json":
            path.mkdir()
    labels = unique_labels(results, paths)
    assert labels == [
        "wt2-to-ptb test (raw)", "wt2-to-ptb test (lower) #1",
        "wt2-to-ptb test (lower) #2", "wt2-to-ptb valid",
    ]  # fmt: skip


def test_folders_that_differ_in_signs_alone_get_reports_of_their_own(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("run.1", "run-1", "run-1-2")]
    for name in names:
        sample_result(50).save(name)
    out = tmp_path / "out"
    assert main([*map(str, names), "--format", "csv", "--output-path", str(out)]) == 0
    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        "wt2-to-ptb-test-run-1", "wt2-to-ptb-test-run-1-2", "wt2-to-ptb-test-run-1-2-2",
    }  # fmt: skip
