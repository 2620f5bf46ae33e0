from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hebblm.errors import UserError
from hebblm.io.files import sha256
from hebblm.vision import classes, pretraining, tuning
from hebblm.vision.classes import run_incremental, run_online, run_timing
from hebblm.vision.experiments import along, pair, run_experiment
from hebblm.vision.fine_tuning import Stream
from hebblm.vision.learning import Training
from hebblm.vision.reading import top1
from hebblm.vision.result import END, MISSING, Outcome, SeedRun, over_seeds
from hebblm.vision.state import load_state
from hebblm.vision.tuning import ClassSetup, run_of, start_of

from .samples import TINY_CLASSES, after, setup

FIXED = TINY_CLASSES.changed(
    {"online.lr": "1e-3", "increment.lr": "1e-3", "adaptation.mixture_gamma": "0.1"}
)
FIXED = FIXED.changed({"adaptation.hebb_eta": "1"})
RUNS: dict[str, Callable[[ClassSetup], Outcome]] = {
    "online": run_online,
    "incremental": run_incremental,
}


def same(one: Outcome, other: Outcome) -> bool:
    return one.tuning == other.tuning and all(
        a.values == b.values
        and a.counted == b.counted
        and all(torch.equal(a.predictions[name], b.predictions[name]) for name in a.predictions)
        for a, b in zip(one.runs, other.runs, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "module", "part", "calls"),
    [
        ("online", tuning, "read", 2),  # in tuning
        ("online", tuning, "read", 4),  # of the first seed
        ("incremental", Training, "epoch", 6),  # in tuning, after the three of pre-training
        ("incremental", Training, "epoch", 8),  # in the first ratio
    ],
)
def test_interrupted_runs_end_the_same(
    name: str, module: Any, part: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RUNS[name](setup(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(module, part, after(calls, getattr(module, part)))
        with pytest.raises(KeyboardInterrupt):
            RUNS[name](setup(tmp_path / "parted"))
    assert same(whole, RUNS[name](setup(tmp_path / "parted")))


# behind one rate, MbPA's values, and Hebb's
@pytest.mark.parametrize(("calls", "again"), [(1, 1), (3, 1), (4, 1)])
def test_a_tuning_goes_on_behind_what_it_has_tried(
    calls: int, again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_online(setup(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "read", after(calls, tuning.read))
        with pytest.raises(KeyboardInterrupt):
            run_online(setup(tmp_path / "parted"))
    follow, rates = classes._follow, []

    def watched(own: ClassSetup, start: Any, part: str, *rest: Any) -> Any:
        rates.append(part)
        return follow(own, start, part, *rest)

    monkeypatch.setattr(classes, "_follow", watched)
    assert same(whole, run_online(setup(tmp_path / "parted")))
    assert rates.count("train") == again
    assert not list(tmp_path.rglob("*.part.json"))


@pytest.mark.parametrize("name", RUNS)
def test_a_rate_that_diverges_is_tried_like_any_other(name: str, tmp_path: Path) -> None:
    rates = (1e30, 1e-3)  # beyond what the command takes, so that the loss is infinite
    settings = replace(
        TINY_CLASSES,
        online=replace(TINY_CLASSES.online, lr=rates),
        increment=replace(TINY_CLASSES.increment, lr=rates),
    )
    outcome = RUNS[name](setup(tmp_path, settings))
    first, second = next(iter(outcome.tuning.values()))["parametric"]
    assert (first["lr"], first[END], first["loss"]) == (1e30, 0.0, math.inf)
    assert second["loss"] < math.inf
    assert outcome.runs[0].values["parametric"]["lr"] == 1e-3


def test_another_program_tunes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = setup(tmp_path, FIXED)
    start = start_of(own, 1, 3)
    run = run_of(own, start, 1)
    monkeypatch.setattr(tuning, "program", lambda *_: "other")
    assert run_of(own, start, 1) != run


def test_what_another_process_has_tuned_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = setup(tmp_path)
    first = run_online(own)
    own.clear()
    (path,) = tmp_path.rglob("tuning-*.json")
    content, asked = path.read_bytes(), []
    path.unlink()

    @contextmanager
    def file_lock(place: Path, what: str) -> Iterator[bool]:
        asked.append(place)
        place.write_bytes(content)
        yield True

    monkeypatch.setattr(tuning, "file_lock", file_lock)
    monkeypatch.setattr(tuning, "_tune", lambda *_, **__: pytest.fail("it is tuned a second time"))
    assert same(first, run_online(own))
    assert asked == [path]


def test_a_zero_probability_is_an_infinite_loss_among_what_was_tried(tmp_path: Path) -> None:
    alone = replace(
        TINY_CLASSES, adaptation=replace(TINY_CLASSES.adaptation, mixture_gamma=(0.1, 1.0))
    )
    for _ in range(2):  # made, and read again
        tried = run_online(setup(tmp_path, alone)).tuning["3"]["mixture"]
        assert [math.isinf(point["loss"]) for point in tried] == [False, True]


def test_keys_are_rebuilt_each_epoch_and_every_picture_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_incremental(setup(tmp_path, FIXED))  # it is tuned already when the seeds run again
    setup(tmp_path, FIXED).clear()
    read, seen = tuning.read, []

    def watched(blocks: Any, remembered: Any, *args: Any, **options: Any) -> Any:
        seen.append(remembered)
        return read(blocks, remembered, *args, **options)

    monkeypatch.setattr(tuning, "read", watched)
    runs = run_incremental(setup(tmp_path, FIXED)).runs
    assert len(seen) == 4  # two ratios, two epochs
    for run, first, second in zip(runs, seen[::2], seen[1::2], strict=True):
        samples, fewer = run.drawn["increment"], run.drawn["fewer"]
        assert len(first.keys) == len(samples)
        assert not torch.equal(first.keys, second.keys)
        assert torch.equal(first.labels, setup(tmp_path).dataset.train.labels[samples])
        # Of an old class all that pre-training saw, among them its part of the increment.
        few = torch.where(fewer, 2, 6)
        assert torch.equal(first.counts, torch.where(run.drawn["new"], few, 20))
        assert torch.equal(first.counts, second.counts)
        assert torch.equal(first.new, run.drawn["new"])


def test_after_other_epochs_fewer_pictures_are_predicted_or_none(tmp_path: Path) -> None:
    settings = FIXED.changed({"increment.reported": "2", "increment.ratios": "1"})
    whole = run_incremental(
        setup(tmp_path / "whole", settings.changed({"increment.curve_tested": "24"}))
    )
    few = run_incremental(setup(tmp_path / "few", settings))
    own = setup(tmp_path / "none", settings.changed({"increment.curve_tested": "0"}))
    none = run_incremental(own)
    for name, made in whole.runs[0].predictions.items():
        assert torch.equal(few.runs[0].predictions[name][0, :12], made[0, :12])
        assert bool((few.runs[0].predictions[name][0, 12:] == MISSING).all())
        assert bool((none.runs[0].predictions[name][0] == MISSING).all())
        for other in (few, none):
            assert torch.equal(other.runs[0].predictions[name][1], made[1])
    document = run_experiment("incremental", "smoke", own, {"command": "c"})
    curve = document["methods"]["hebb"]["conditions"]["1:1"]["curve"]
    assert [point["at"] for point in curve] == [2]


def test_points_of_the_network_are_scored_along_the_held_out_stream(tmp_path: Path) -> None:
    own = setup(tmp_path, TINY_CLASSES.changed({"online.lr": "1e-3,3e-2", "online.steps": "1,3"}))
    start = start_of(own, 1, 3)
    held_out, new = start.parts.held_out, start.parts.new
    labels = own.dataset.train.labels[held_out]
    points = run_online(own).tuning["3"]["parametric"]
    assert [(point["lr"], point["steps"]) for point in points] == [
        (1e-3, 1), (1e-3, 3), (3e-2, 1), (3e-2, 3),
    ]  # fmt: skip
    for point in points:
        blocks = list(Stream(own, start, "train", held_out, 1, point))
        logits = torch.cat([block.head.logits(block.hidden) for block in blocks])
        assert point["loss"] == pytest.approx(
            float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5
        )
        right = logits.argmax(1) == labels
        for side, among in {"old": ~new[labels], "new": new[labels]}.items():
            assert point[side] == pytest.approx(float(right[among].double().mean()))
        assert point["overall"] == pytest.approx(float(right.double().mean()))
        late = right[len(right) // 2 :]
        assert point[END] == pytest.approx(float(late.double().mean()))


def test_the_incremental_gate_learns_on_held_out_pictures_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods, gates = tuning.read, []

    def watched(*args: Any, **options: Any) -> Any:
        found = methods(*args, **options)
        gates.append(found["best"].gate if "best" in found else None)
        return found

    monkeypatch.setattr(tuning, "read", watched)
    outcome = run_incremental(setup(tmp_path, FIXED))
    assert outcome.tuning["1:1"] is not None, "the gate learns although nothing is left to choose"
    (point,) = outcome.tuning["1:1"]["best"]
    weights = {name: value for name, value in point.items() if name.startswith("gate ")}
    assert any(weights.values())
    assert outcome.runs[0].values["best"] == {"lr": 0.0, **weights}
    assert gates[-1] is None, "a gate that stays learns nothing from test pictures"


def test_finished_seeds_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, run in RUNS.items():
        first = run(setup(tmp_path, FIXED))
        with monkeypatch.context() as patch:
            patch.setattr(tuning, "read", after(0, tuning.read))
            assert same(first, run(setup(tmp_path, FIXED))), name


@pytest.mark.parametrize("name", RUNS)
def test_test_pictures_are_read_after_tuning_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, read = pretraining.Pretrained.pictures, []

    def watched(self: pretraining.Pretrained, part: str) -> Any:
        read.append((part, bool(list(tmp_path.rglob("tuning-*.json")))))
        return pictures(self, part)

    monkeypatch.setattr(pretraining.Pretrained, "pictures", watched)
    RUNS[name](setup(tmp_path))
    assert ("test", True) in read
    assert ("train", False) in read
    assert ("test", False) not in read


@pytest.mark.parametrize("name", RUNS)
def test_chooses_the_best_point(name: str, tmp_path: Path) -> None:
    outcome = RUNS[name](setup(tmp_path))
    values, tried = outcome.runs[0].values, next(iter(outcome.tuning.values()))
    assert set(tried) == set(values)
    for method, points in tried.items():
        score = END if method == "parametric" else "overall"
        winner = sorted(points, key=lambda point: (-point[score], point["loss"]))[0]
        frozen = {"lr"} if (method, name) == ("best", "incremental") else set()
        for key in values[method].keys() - frozen:
            assert values[method][key] == winner[key]
        old, new = winner["old"], winner["new"]
        assert winner["harmonic_mean"] == pytest.approx(
            2 * old * new / (old + new) if old + new else 0.0
        )
    settings = TINY_CLASSES.online if name == "online" else TINY_CLASSES.increment
    assert [point["lr"] for point in tried["parametric"]] == list(settings.lr)


def test_by_newton_steps_no_query_is_run_again_and_the_pull_is_what_is_tuned(
    tmp_path: Path,
) -> None:
    newton = TINY_CLASSES.changed({"adaptation.mbpa_l2_to_base": "1e-3,1e9"})
    document = run_experiment("online", "smoke", setup(tmp_path, newton), {"command": "c"})
    tried = document["tuning"]["3"]
    assert [point["l2_to_base"] for point in tried["mbpa"]] == [1e-3, 1e9]
    alone = next(
        point
        for point in tried["parametric"]
        if point["lr"] == values_of("parametric", document)["lr"]
    )
    for name in ("old", "new"):
        assert tried["mbpa"][1][name] == alone[name], "held so fast that nothing is adapted"
    assert tried["mbpa"][0] != {**tried["mbpa"][1], "l2_to_base": 1e-3}
    assert set(values_of("hebb", document)) == {"l2_to_base", "beta", "eta"}
    for method in ("mbpa", "hebb"):
        assert [
            seed["stabilized"] for seed in document["methods"][method]["conditions"]["3"]["seeds"]
        ] == [0]


def test_by_rmsprop_rate_and_steps_are_tuned_as_in_the_paper(tmp_path: Path) -> None:
    rmsprop = TINY_CLASSES.changed(
        {"adaptation.mbpa_optimizer": "rmsprop", "adaptation.mbpa_lambda": "0,1e-2"}
    )
    document = run_experiment("online", "smoke", setup(tmp_path, rmsprop), {"command": "c"})
    tried = document["tuning"]["3"]
    assert [(point["rate"], point["steps"]) for point in tried["mbpa"]] == [(0, 2), (1e-2, 2)]
    assert tried["mbpa"][0]["loss"] != tried["mbpa"][1]["loss"]
    assert set(values_of("hebb", document)) == {"rate", "steps", "beta", "eta"}


def values_of(method: str, document: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = document["methods"][method]["conditions"]["3"]["hyperparameters"]
    return found


def test_hebb_remembers_new_classes_that_the_network_does_not_know(tmp_path: Path) -> None:
    strong = FIXED.changed(
        {"adaptation.hebb_eta": "20", "online.lr": "1e-6", "online.streamed": "48"}
    )
    run = run_online(setup(tmp_path, strong)).runs[0]
    scores = {
        name: top1(made[0], run.labels, run.drawn["new"]) for name, made in run.predictions.items()
    }
    assert scores["parametric"]["new"] == 0
    assert scores["hebb"]["new"] is not None
    assert scores["hebb"]["new"] > 0.3
    assert scores["parametric"]["old"] is not None
    assert scores["parametric"]["old"] > 0.8


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", [*RUNS, "timing"])
def test_runs_on_a_gpu(name: str, tmp_path: Path) -> None:
    own = replace(
        setup(tmp_path, replace(TINY_CLASSES, precision="auto")), device=torch.device("cuda")
    )
    document = run_experiment(name, "smoke", own, {"command": "c"})
    assert all(entry["pretraining"]["precision"] == "bfloat16" for entry in document["seeds"])
    assert all(entry["pretraining"]["held_out_top1"] > 0.6 for entry in document["seeds"])


def test_seeds_draw_other_pictures(tmp_path: Path) -> None:
    one, other = run_online(
        setup(tmp_path, replace(FIXED, pretrainings="shared"), seeds=(1, 2))
    ).runs
    assert one.about == other.about
    assert torch.equal(one.drawn["new"], other.drawn["new"])
    assert not torch.equal(one.drawn["test"], other.drawn["test"])


def test_result_of_an_imbalanced_increment(tmp_path: Path) -> None:
    own = setup(tmp_path, FIXED, seeds=(1, 2))
    document = run_experiment("incremental", "smoke", own, {"command": "c"})
    assert json.loads((own.folder / "result.json").read_text()) == json.loads(json.dumps(document))
    assert document["schema"] == "hebblm-vision/1"
    assert [(entry["condition"], entry["seed"]) for entry in document["seeds"]] == [
        ("1:1", 1),
        ("1:1", 2),
        ("3:1", 1),
        ("3:1", 2),
    ]
    for entry in document["seeds"]:
        assert sha256(own.folder / entry["file"]) == entry["file_sha256"]
        tensors = load_file(own.folder / entry["file"])
        for name, method in document["methods"].items():
            summary = method["conditions"][entry["condition"]]
            seed = next(part for part in summary["seeds"] if part["seed"] == entry["seed"])
            right = (tensors[f"predictions.{name}"] == tensors["labels"]).double().mean(1)
            assert [point["overall"] for point in seed["curve"]] == pytest.approx(right.tolist())
            assert seed["overall"] == pytest.approx(float(right[-1]))
            assert [point["at"] for point in summary["curve"]] == [1, 2]
            means = [part["overall"] for part in summary["seeds"]]
            assert summary["overall"]["mean"] == pytest.approx(sum(means) / 2)


def test_sensitivity_holds_hebb_at_the_same_point(tmp_path: Path) -> None:
    settings = FIXED.changed({"adaptation.hebb_beta": "0.8", "adaptation.hebb_eta": "0.2"})
    own = setup(tmp_path, settings)
    plain = run_online(own).runs[0].predictions["hebb"]
    own.clear()
    document = run_experiment("sensitivity", "smoke", own, {"command": "c"})
    assert list(document["grid"].values()) == [
        {"beta": beta, "eta": eta} for beta in (0.5, 0.8) for eta in (0.2, 1.0)
    ]
    file = load_file(tmp_path / "out" / document["seeds"][0]["file"])
    assert torch.equal(file["predictions.hebb beta=0.8 eta=0.2"], plain)
    point = document["methods"]["hebb beta=0.8 eta=0.2"]["conditions"]["3"]
    assert point["hyperparameters"] == {"l2_to_base": 1e-3, "beta": 0.8, "eta": 0.2}


def test_ablation_and_numbers_of_old_classes(tmp_path: Path) -> None:
    own = setup(tmp_path, FIXED)
    ablation = run_experiment("ablation", "smoke", own, {"command": "c"})
    assert list(ablation["methods"]) == [
        "mbpa", "hebb-v1", "hebb-v2", "hebb-v3", "hebb-4", "hebb-9", "hebb",
    ]  # fmt: skip
    own.clear()
    varied = run_experiment("pretrain-classes", "smoke", own, {"command": "c"})
    assert list(varied["methods"]["hebb"]["conditions"]) == ["2", "3"]
    assert [len(entry["old_classes"]) for entry in varied["seeds"]] == [2, 3]


def test_times_are_ratios_within_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = setup(tmp_path, FIXED)
    with monkeypatch.context() as patch:
        patch.setattr(classes, "read", after(11, classes.read))  # in the second round
        with pytest.raises(KeyboardInterrupt):
            run_timing(own)
    path = next(own.state.glob("timing-*.safetensors"))
    found = load_state(path, path.name.removeprefix("timing-").partition(".")[0])
    assert found is not None
    (first,) = found[1]["taken"]
    methods = run_timing(own)["methods"]
    seconds = {name: item["seconds"]["rounds"] for name, item in methods.items()}
    assert {name: rounds[0] for name, rounds in seconds.items()} == {
        name: item["seconds"] for name, item in first.items()
    }
    assert {len(rounds) for rounds in seconds.values()} == {2}
    assert methods["parametric"]["ratio"]["rounds"] == [1.0, 1.0]
    assert methods["hebb"]["ratio"]["rounds"][1] == seconds["hebb"][1] / seconds["parametric"][1]


def test_a_timing_by_other_threads_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = setup(tmp_path, FIXED)
    run_timing(own)
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    run_timing(own)
    assert len(list(own.state.glob("timing-*.safetensors"))) == 2


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"old_classes": "6"}, "6 pre-training classes leave no new class"),
        ({"online.streamed": "100"}, "100 test pictures were asked for"),
        ({"increment.tested": "100"}, "100 test pictures were asked for"),
        ({"increment.samples": "21"}, "increment.samples = 21 is more"),
        ({"timing.samples": "100"}, "100 test pictures were asked for"),
        ({"varied": "2,9"}, "9 pre-training classes leave no new class"),
    ],
)
def test_refuses_before_anything_is_trained(
    values: dict[str, str], told: str, tmp_path: Path
) -> None:
    experiment = {"increment": "incremental", "timing": "timing", "varied": "pretrain-classes"}
    name = experiment.get(next(iter(values)).partition(".")[0], "online")
    with pytest.raises(UserError, match=told):
        run_experiment(name, "smoke", setup(tmp_path, FIXED.changed(values)), {})
    assert not list(tmp_path.iterdir())


def test_accuracies_by_hand() -> None:
    new = torch.tensor([False, True, True])
    labels = torch.tensor([0, 1, 2, 0])
    made = torch.tensor([0, 1, 0, 1], dtype=torch.uint8)
    assert top1(made, labels, new) == {"new": 0.5, "old": 0.5, "overall": 0.5}
    points = along(made, labels, new, 1)
    assert [point["at"] for point in points] == [1, 2, 3, 4]
    assert points[0] == {"at": 1, "new": None, "old": 1.0, "overall": 1.0}
    assert points[2]["overall"] == pytest.approx(2 / 3)
    assert [point["at"] for point in along(made, labels, new, 3)] == [3, 4]
    means = over_seeds(
        [{"new": 0.2, "old": 1.0, "overall": None}, {"new": 0.4, "old": 1.0, "overall": 0.5}]
    )
    assert means["new"] == {"mean": pytest.approx(0.3), "std": pytest.approx(0.02**0.5)}
    assert means["overall"] is None


def test_differences_are_paired_over_seeds_and_over_the_pictures_of_a_single_one() -> None:
    new, labels = torch.tensor([False, True]), torch.tensor([0, 1, 0, 1])
    hebb = {1: [0, 1, 0, 1], 2: [0, 1, 0, 0]}
    runs = [
        SeedRun(
            seed, {}, labels,
            {
                "hebb": torch.tensor([made], dtype=torch.uint8),
                "mbpa": torch.tensor([[0, 0, 0, 0]], dtype=torch.uint8),
            },
            {}, {"new": new},
        )
        for seed, made in hebb.items()
    ]  # fmt: skip
    both = pair(runs, "hebb", "mbpa")
    assert (both["first"], both["second"], both["over"]) == ("hebb", "mbpa", "seeds")
    assert both["old"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    # 1 and 1/2 ahead on new pictures: 0.75, with t = 12.706 of one degree of freedom.
    half = 12.7062 * 0.125**0.5 / 2**0.5
    assert both["new"] == pytest.approx(
        {"mean": 0.75, "low": 0.75 - half, "high": 0.75 + half}, rel=1e-4
    )
    alone = pair(runs[1:], "hebb", "mbpa")
    half = 1.95996 * (3 * 0.25**2 + 0.75**2) ** 0.5 / 3**0.5 / 4**0.5
    assert alone["over"] == "pictures"
    assert alone["overall"] == pytest.approx(
        {"mean": 0.25, "low": 0.25 - half, "high": 0.25 + half}, rel=1e-4
    )


def test_a_stream_is_scored_again_over_its_second_half(tmp_path: Path) -> None:
    own = setup(tmp_path, FIXED)
    document = run_experiment("online", "smoke", own, {"command": "c"})
    file = load_file(own.folder / document["seeds"][0]["file"])
    for name, method in document["methods"].items():
        summary = method["conditions"]["3"]
        right = (file[f"predictions.{name}"][0] == file["labels"])[20:]
        is_new = file["new"].bool()[file["labels"]][20:]
        assert summary["late_overall"]["mean"] == pytest.approx(float(right.double().mean()))
        assert summary["late_new"]["mean"] == pytest.approx(float(right[is_new].double().mean()))
    (seed,) = document["methods"]["parametric"]["conditions"]["3"]["seeds"]
    assert seed["drift_of_pretraining_keys"] > 0
    assert seed["drift_of_stream_keys"] > 0


def test_a_long_curve_has_about_a_hundred_points_and_ends_at_the_end() -> None:
    labels = torch.zeros(1_005, dtype=torch.int64)
    points = along(labels.to(torch.uint8), labels, torch.tensor([False]), 2)
    assert len(points) <= 101
    assert points[-1]["at"] == 1_005
