from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hebblm.vision.document import figures, print_summary, verdict, write_report
from hebblm.vision.tables import tables

MEANS = {"mlp": 0.5, "ewc": 0.8, "mbpa-5": 0.7, "hebb-5": 0.75, "mbpa-10": 0.9, "hebb-10": 0.85}


def document(*, seeds: int = 3, tasks: int = 4) -> dict[str, Any]:
    def part(mean: float) -> dict[str, float | None]:
        return {"mean": mean, "std": 0.01 if seeds > 1 else None}

    return {
        "experiment": "permuted-mnist",
        "scale": "smoke",
        "data": {"name": "patterns"},
        "settings": {
            "tasks": tasks,
            "train_samples": 60,
            "test_samples": 20,
            "curve_samples": 8,
            "epochs": 3,
            "stored": [5, 10],
        },
        "provenance": {"seeds": list(range(seeds))},
        "methods": {
            name: {
                "average_accuracy": part(mean),
                "forgetting": part(1 - mean) if tasks > 1 else None,
                "backward_transfer": part(mean - 1) if tasks > 1 else None,
                "curve": [part(mean + 0.1 / (at + 1)) for at in range(tasks)],
                "seeds": [{"average_accuracy": mean + (at - 1) / 100} for at in range(seeds)],
            }
            for name, mean in MEANS.items()
        },
    }


def test_rows_in_order_with_the_papers_places() -> None:
    (table,) = tables(document())
    text = table.text()
    assert [row[0] for row in text] == ["MLP", "EWC", "MbPA-5", "MbPA-10", "Hebb-5", "Hebb-10"]
    assert [row[-1] for row in text] == ["4", "3", "2", "2", "1", "1"]
    # Against those that store as much: 5 below EWC, 10 above it.
    assert [row[-2] for row in text] == ["4", "3", "3", "1", "2", "2"]
    assert text[3][1:3] == ["0.9000", "0.0100"]
    assert text[0][5] == "-0.5000"
    assert table.best_cells() >= {(3, 1), (3, 3), (3, 5)}


@pytest.mark.parametrize("shape", [{"seeds": 1}, {"tasks": 1}, {"seeds": 1, "tasks": 1}])
def test_what_is_undefined_is_a_dash(shape: dict[str, int], tmp_path: Path) -> None:
    rows = tables(document(**shape))[0].text()
    assert "-" in rows[0]
    assert "nan" not in str(rows)
    assert len(write_report(document(**shape), tmp_path)) == 3


def test_curves_have_one_line_a_method() -> None:
    axis = figures(document())["permuted-mnist.png"][1].axes[0]
    assert len(axis.lines) == len(MEANS)
    assert axis.lines[0].get_ydata()[0] == pytest.approx(0.6)
    assert len(axis.collections) == len(MEANS)  # a band a method
    assert len({text.get_text().split()[0] for text in axis.texts}) == len(MEANS)


def test_a_picture_has_at_most_so_many_lines_and_counts_the_rest(tmp_path: Path) -> None:
    found = document()
    many = {f"{kind}-{size}": found["methods"][f"{kind}-5"] for kind in ("mbpa", "hebb") for size in (20, 40)}
    found["methods"] |= many
    found["settings"]["stored"] = [5, 10, 20, 40]
    for most, drawn in ((6, 6), (0, 10)):
        ((_, figure),) = figures(found, most=most).values()
        assert len(figure.axes[0].lines) == drawn
    *_, few = write_report(found, tmp_path / "few")
    *_, many_lines = write_report(found, tmp_path / "all", plotted=0)
    assert few.read_bytes() != many_lines.read_bytes()
    assert "4 more" in [text.get_text()[:6] for text in figures(found)["permuted-mnist.png"][1].axes[0].texts]


def test_the_verdict_comes_first(tmp_path: Path) -> None:
    said = "MbPA-10 is best: 90.0 % right, 5.0 points (95 % interval 5.0 to 5.0) ahead of Hebb-10 over 3 seeds."
    assert verdict(document()) == said
    write_report(document(), tmp_path)
    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith(f"{said}\n\n## Permuted MNIST")
    stream = io.StringIO()
    print_summary(document(), Console(file=stream, width=100, color_system=None))
    assert stream.getvalue().startswith(f"{said}\n\n")


def test_seeds_that_cannot_tell_say_so() -> None:
    found = document()
    for at, seed in enumerate(found["methods"]["hebb-10"]["seeds"]):
        seed["average_accuracy"] = 0.88 + (at - 1) / 20
    assert verdict(found) == (
        "3 seeds cannot tell who is best: MbPA-10, 90.0 % right, "
        "is 2.0 points (95 % interval -7.9 to 11.9) ahead of Hebb-10."
    )
    assert verdict(document(seeds=1)) == (
        "One seed cannot tell who is best: MbPA-10, 89.0 % right, is 5.0 points ahead of Hebb-10."
    )


def test_same_result_same_files(tmp_path: Path) -> None:
    first = write_report(document(), tmp_path / "a")
    second = write_report(json.loads(json.dumps(document())), tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_console_tears_no_header_and_no_number(width: int) -> None:
    stream = io.StringIO()
    print_summary(document(), Console(file=stream, width=width, color_system=None))
    lines = stream.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    words = set(stream.getvalue().split())
    (table,) = tables(document())
    assert words >= {word for column in table.columns for word in column.header.split()}
    assert words >= {cell for row in table.text() for cell in row}
