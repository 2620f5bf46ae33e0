"""The recipes: which commands they run at each scale, and that what is finished is not run
again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from hebblm.cli.common import parse
from hebblm.cli.eval import EvalConfig
from hebblm.cli.preprocess import PreprocessConfig
from hebblm.cli.report import ReportConfig
from hebblm.cli.train import TrainConfig
from hebblm.cli.tune import TuneConfig
from hebblm.cli.vision import VisionConfig
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.vision.paper import PERMUTED_PAPER
from hebblm.vision.scales import CLASS_SCALES, PERMUTED_SCALES
from recipes.hebb.tune import HebbTuneConfig
from recipes.study.command import BookConfig, PaperConfig, ReadingsConfig

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
LANGUAGE = ("lm_intra_domain", "lm_cross_domain", "frequency", "readings", "tune")
OTHERS = (
    "conclusions", "hebb", "hf_results",  # what they find is kept under recipes/
    "train_models", "quickstart", "hf_small", "paper_stages",
)  # fmt: skip
COMMANDS = tuple(
    f"hebblm-{name}" for name in ("eval", "tune", "vision", "report", "train", "preprocess")
)
MODULES = (
    "study",
    "conclusions",
    "causal_tables",
    "compact",
    "readme_results",
    "hf_small",
    "hebb.tune",
    "hebb.pairs",
    "bench",
)
VISION = tuple(sorted(path.stem for path in RECIPES.glob("vision_*.sh")))
CONFIGS: dict[str, Any] = {
    "hebblm-eval": EvalConfig,
    "hebblm-tune": TuneConfig,
    "hebblm-vision": VisionConfig,
    "hebblm-train": TrainConfig,
    "hebblm-preprocess": PreprocessConfig,
    "hebb.tune": HebbTuneConfig,
}
TUNING = ("hebblm-tune", "hebb.tune")
STUDIES: dict[str, Any] = {"book": BookConfig, "paper": PaperConfig, "readings": ReadingsConfig}
# A stand-in for every command: notes its arguments, and writes what the recipes look for.
STAND_IN = """#!{python} -S
import json, os, pathlib, shlex, sys
name, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([name, *arguments]) + "\\n")
if arguments[0] == "paper":
    sys.exit()
if "--output-path" not in arguments:
    sys.exit()
place = pathlib.Path(arguments[len(arguments) - 1 - arguments[::-1].index("--output-path") + 1])
place.mkdir(parents=True, exist_ok=True)
made = "tuned.json" if name in ("hebblm-tune", "hebb.tune") else "result.json"
made = "readings.json" if arguments[0] == "readings" else made
command = ["python", "-m", "recipes." + name] if name in ("study", "hebb.tune") else [name]
by = {{"command": shlex.join([*command, *arguments])}}
(place / made).write_text(json.dumps({{"provenance": by, "scenario": {{"tokens": 5}}}}))
(place / "report.md").write_text("the table\\n")
if name == "study":
    chapters = ["# Book", "## Tuning", "the values", "## What the paper leaves open", "the effects"]
    chapters += ["## Images", "the curves", "## Where", ""]
    (place / "book.md").write_text("\\n".join(chapters))
if name == "hebblm-vision":
    print("the table")
if name == "hebblm-tune":
    (place / "config.json").write_text("{{}}")
if "--log-samples" in arguments:
    (place / "tokens.parquet").write_bytes(b"")
"""


class Desk:
    """A folder of stand-ins for the commands, and one for results."""

    def __init__(self, root: Path) -> None:
        self.bin, self.results, self.log = root / "bin", root / "results", root / "log"
        self.bin.mkdir()
        for name in (*COMMANDS, *MODULES):
            (self.bin / name).write_text(STAND_IN.format(python=sys.executable, log=str(self.log)))
        (self.bin / "python").write_text(
            '#!/bin/sh\ncase "$1 $2" in\n"-m recipes."*) name="${2#recipes.}"; shift 2; exec '
            '"$name" "$@" ;;\n'
            'recipes/hf_small.py*) shift; exec hf_small "$@" ;;\nesac\n'
            f'exec {sys.executable} "$@"\n'
        )
        for path in self.bin.iterdir():
            path.chmod(0o755)
        for name in ("pydoc", "numpy"):
            path = self.results / "smoke" / "text" / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a text\n")

    def run(
        self, recipe: str, scale: str = "small", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        self.log.unlink(missing_ok=True)
        given = {
            "HEBBLM_BIN": str(self.bin),
            "RESULTS": str(self.results),
            "SCALE": scale,
            **environment,
        }
        kept = {
            name: value for name, value in os.environ.items() if name not in ("SEEDS", "DEVICE")
        }
        return subprocess.run(
            [RECIPES / f"{recipe}.sh"],
            capture_output=True,
            text=True,
            env={**kept, **given},
            check=False,
        )

    def commands(self, *names: str) -> list[list[str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [call for call in map(json.loads, lines) if not names or call[0] in names]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def understood(desk: Desk, scale: str) -> int:
    """Let the commands take what a recipe ran, each within its folder; return how many results were
    to be made.
    """
    studied = desk.commands("study")
    runs = [*desk.commands(*CONFIGS), *(command for command in studied if command[1] == "readings")]
    for name, *arguments in runs:
        kind = CONFIGS[name] if name in CONFIGS else STUDIES[arguments.pop(0)]
        config = parse(kind, arguments, prog=name, description="", example="")
        assert Path(config.output_path).is_relative_to(desk.results / scale)
        assert getattr(config, "scale", scale) == scale
        if name != "hebblm-vision":
            assert config.preset == {"smoke": "tiny"}.get(scale, scale)
            config.corpora()
    for _, verb, *arguments in studied:
        parse(STUDIES[verb], arguments, prog="", description="", example="")
    for _, *arguments in desk.commands("hebblm-report"):
        named = parse(ReportConfig, arguments, prog="", description="", example="")
        assert all(place.is_dir() for place in named.results)
    return len(runs)


@pytest.mark.parametrize("recipe", [*LANGUAGE, *VISION])
def test_a_recipe_runs_what_the_commands_understand_and_only_once(desk: Desk, recipe: str) -> None:
    done = desk.run(recipe, "paper")
    assert done.returncode == 0, done.stderr
    count = understood(desk, "paper")
    assert count
    again = desk.run(recipe, "paper")
    assert again.returncode == 0
    assert desk.commands(*CONFIGS) == []
    assert again.stdout.count("have ") == count
    if recipe in VISION:
        assert done.stdout.count("the table") == again.stdout.count("the table") == count


@pytest.mark.parametrize("recipe", OTHERS)
def test_at_smoke_a_recipe_reads_little_and_keeps_nothing_under_recipes(
    desk: Desk, recipe: str
) -> None:
    done = desk.run(recipe, "smoke")
    assert done.returncode == 0, done.stderr
    calls = desk.commands()
    for name, *arguments in calls:
        if name in CONFIGS:
            config = parse(CONFIGS[name], arguments, prog=name, description="", example="")
            assert str(config.output_path).startswith(str(desk.results / "smoke"))
            assert getattr(config, "preset", None) not in ("medium", "paper")
            assert name not in ("hebblm-eval", *TUNING) or config.max_tokens <= 200
            assert name != "hebblm-train" or config.epochs == 1
            assert name != "hebblm-vision" or config.scale == "smoke"
    assert 0 < len(calls) <= 25, "each takes some seconds"
    assert not {"compact", "readme_results"} & {call[0] for call in calls}


def test_only_what_is_missing_or_other_is_run_again(desk: Desk) -> None:
    desk.run("lm_intra_domain")
    runs = [command[-1] for command in desk.commands("hebblm-eval")]
    assert len(runs) == len(set(runs)) == 6
    (Path(runs[0]) / "result.json").unlink()
    (Path(runs[1]) / "tokens.parquet").unlink()
    (Path(runs[2]) / "result.json").write_text("{")
    desk.run("lm_intra_domain")
    assert [command[-1] for command in desk.commands("hebblm-eval")] == runs[:3]
    desk.run("lm_intra_domain", DEVICE="cpu")
    assert [command[-1] for command in desk.commands("hebblm-eval")] == runs


def test_each_solver_is_read_with_and_without_hebb_at_values_from_validation_text(
    desk: Desk,
) -> None:
    done = desk.run("hebb", "smoke")
    assert done.returncode == 0, done.stderr
    found = {
        Path(arguments[-1]).name: parse(
            CONFIGS[name], arguments, prog=name, description="", example=""
        )
        for name, *arguments in desk.commands("hebblm-eval")
    }
    tuned = [
        parse(HebbTuneConfig, arguments, prog=name, description="", example="").split
        for name, *arguments in desk.commands("hebb.tune")
    ]
    assert tuned == ["valid"] * 3
    for name, tuning in (
        ("pydoc-1-step", "pydoc-1-step"),
        ("pydoc-5-steps", "pydoc-5-steps"),
        ("pydoc-to-numpy-best", "pydoc-to-numpy-learns"),
    ):
        values = Path(found[name].hyperparameters)
        assert values.parent.name == tuning
        assert values.name == "tuned.json"
        assert {"lstm", "mbpa", "hebb"} <= {*found[name].methods.split(",")}
    for steps in ("1-step", "5-steps"):
        fast, exact = (found[f"pydoc-{steps}-{form}"] for form in ("fast", "exact"))
        assert (fast.method, exact.method) == ("fast", "exact")
        assert fast.set == exact.set == found[f"pydoc-{steps}"].set
    assert desk.run("hebb", "smoke").returncode == 0
    assert desk.commands(*CONFIGS) == []


def test_every_seed_has_a_run_of_its_own(desk: Desk) -> None:
    desk.run("lm_cross_domain", "smoke", SEEDS="1111 7")
    made = {
        (command[-1], command[command.index("--seed") + 1])
        for command in desk.commands("hebblm-eval")
    }
    assert (str(desk.results / "smoke" / "pydoc-to-numpy"), "1111") in made
    assert (str(desk.results / "smoke" / "pydoc-to-numpy-seed7"), "7") in made
    desk.run("vision_online", "small", SEEDS="4 5")
    (command,) = desk.commands("hebblm-vision")
    assert command[command.index("--seeds") + 1 :][:2] == ["4", "5"]


def test_new_words_are_read_in_both_cases_under_both_vocabularies(desk: Desk) -> None:
    desk.run("lm_cross_domain", "small")
    found = set()
    for command in desk.commands("hebblm-eval"):
        read = parse(EvalConfig, command[1:], prog="", description="", example="")
        found.add((read.normalization, read.vocabulary, read.hyperparameters))
    default = EvalConfig.normalization
    assert found == {
        (default, "union", "default"), (default, "open", "default"), (default, "union", "paper"),
        ("raw", "union", "default"), ("raw", "open", "default"),
    }  # fmt: skip
    (shown,) = desk.commands("hebblm-report")
    assert len(shown[1 : shown.index("--output-path")]) == len(desk.commands("hebblm-eval")) == 6


def test_a_chapter_of_a_book_is_shown_alone(desk: Desk) -> None:
    assert desk.run("tune").stdout.endswith("## Tuning\nthe values\n")
    assert desk.run("readings").stdout.endswith("## What the paper leaves open\nthe effects\n")


def test_the_papers_networks_are_run_at_its_scale(desk: Desk) -> None:
    desk.run("vision_incremental", "paper")
    backbones = [
        command[command.index("--backbone") + 1] for command in desk.commands("hebblm-vision")
    ]
    assert backbones == ["resnet50", "densenet121", "mobilenetv2"]


def test_every_image_experiment_has_a_short_run_at_the_papers_scale(desk: Desk) -> None:
    done = desk.run("paper_stages", "small")
    assert done.returncode == 0, done.stderr
    seen = set()
    for name, *arguments in desk.commands():
        config = parse(VisionConfig, arguments, prog=name, description="", example="")
        assert config.scale == "paper"
        permuted = config.experiment == "permuted-mnist"
        settings: Any = (PERMUTED_SCALES if permuted else CLASS_SCALES)["paper"]
        settings = settings.changed(
            PERMUTED_PAPER if permuted else {"backbone": config.backbone or "resnet50"}
        )
        assert settings.changed(parse_settings(config.set)) != settings
        seen |= {config.experiment, config.backbone}
    assert seen == {
        *get_args(get_type_hints(VisionConfig)["experiment"]),
        None,
        "densenet121",
        "mobilenetv2",
    }


def test_an_unknown_scale_is_one_line(desk: Desk) -> None:
    done = desk.run("lm_cross_domain", "huge")
    assert done.returncode == 2
    assert done.stderr == "SCALE=huge must be smoke, small or paper\n"
    assert desk.commands() == []


def test_all_runs_every_recipe_and_ends_with_the_book(desk: Desk) -> None:
    done = desk.run("all", "smoke")
    assert done.returncode == 0, done.stderr
    begun = [
        line.removeprefix("== ") for line in done.stdout.splitlines() if line.startswith("== ")
    ]
    assert sorted(begun) == sorted([*LANGUAGE, *VISION])
    assert understood(desk, "smoke") > len(begun)
    results = str(desk.results / "smoke")
    assert desk.commands()[-1] == ["study", "book", results, "--output-path", f"{results}-book"]


def test_a_failing_command_ends_the_recipe(desk: Desk) -> None:
    (desk.bin / "hebblm-eval").write_text("#!/bin/sh\nexit 3\n")
    done = desk.run("all", "smoke")
    assert done.returncode == 3
    assert desk.commands("hebblm-vision") == []


def test_scripts_say_what_they_make() -> None:
    for path in RECIPES.glob("*.sh"):
        lines = path.read_text().splitlines()
        assert lines[0].startswith("#"), path
        if path.name != "common.sh":
            assert lines[0] == "#!/usr/bin/env bash"
            assert lines[1].startswith("# ")
            assert "set -euo pipefail" in lines
            assert os.access(path, os.X_OK)


@pytest.mark.slow
@pytest.mark.skipif(
    "HEBBLM_RECIPES" not in os.environ, reason="some minutes; set HEBBLM_RECIPES=1 to run them"
)
def test_language_recipes_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which("hebblm-eval", path=str(Path(sys.executable).parent))
    assert found is not None
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))
    given = {
        "HEBBLM_BIN": str(Path(found).parent),
        "RESULTS": str(tmp_path),
        "SCALE": "smoke",
        "DEVICE": "cpu",
    }
    for recipe in ("tune", "lm_intra_domain", "lm_cross_domain", "frequency"):
        done = subprocess.run(
            [RECIPES / f"{recipe}.sh"],
            capture_output=True,
            text=True,
            env={**os.environ, **given},
            check=False,
        )
        assert done.returncode == 0, done.stderr
    names = {path.parent.name for path in (tmp_path / "smoke").rglob("result.json")}
    runs = {
        "intra-pydoc": ("", "-valid", "-paper"),
        "pydoc-to-numpy": ("", "-paper", "-base-learns", "-open"),
    }
    assert {name + suffix for name, suffixes in runs.items() for suffix in suffixes} <= names
    assert "Training count" in done.stdout


def test_an_image_result_without_its_report_is_shown_and_not_made_again(desk: Desk) -> None:
    assert desk.run("vision_online").returncode == 0
    (desk.results / "small" / "online" / "report.md").unlink()
    done = desk.run("vision_online")
    assert done.returncode == 0, done.stderr
    ((name, *arguments),) = desk.commands()
    assert name == "study"
    assert arguments[:2] == ["book", str(desk.results / "small" / "online")]
    assert "the curves" in done.stdout
