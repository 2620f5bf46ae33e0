"""A user's mistake: status 2, one line that tells, nothing half-written."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import pytest
import torch

from hebblm.cli.eval import main as evaluate
from hebblm.cli.preprocess import main as preprocess
from hebblm.cli.report import main as report
from hebblm.cli.train import main as train
from hebblm.cli.tune import main as tune
from hebblm.download import cache_dir
from hebblm.files import SEAL, write_json

from .conftest import World

Main = Callable[[list[str] | None], int]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, where no ``data/`` is, with no data named and no network to fetch it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEBBLM_DATA", raising=False)
    monkeypatch.setenv("HEBBLM_MIRROR", "http://127.0.0.1:9")


def refused(main: Main, arguments: list[str], capture: Capture, *told: str, work_before: bool = False) -> None:
    """Run a command that must end with status 2 and a single line, after nothing but progress bars."""
    capture.readouterr()
    assert main(arguments) == 2
    lines = [line for line in capture.readouterr().err.splitlines() if line.strip()]
    assert lines[-1].startswith("hebblm-")
    assert ": error: " in lines[-1]
    for words in told:
        assert words in lines[-1]
    assert work_before or len(lines) == 1
    assert not any("Traceback" in line or "error:" in line for line in lines[:-1])


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return every file below a folder with its bytes, and every folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Make every write beyond ``size`` bytes of a file fail, like on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name one scenario"),
        (["--intra-domain", "ptb", "--cross-domain", "wt2-to-ptb"], "name one scenario"),
        (["--cross-domain", "wt2"], "A-to-B"),
        (["--intra-domain", "klingon"], "unknown corpus 'klingon'"),
        (["--intra-domain", "text:absent.txt"], "absent.txt does not exist"),
        (["--intra-domain", "text:empty.txt"], "empty.txt is empty"),
        (["--intra-domain", "ptb", "--methods", "lstm,gpt"], "unknown method 'gpt'"),
        (["--intra-domain", "ptb", "--methods", "lstm,lstm"], "each method once"),
        (["--intra-domain", "ptb", "--methods", ""], "unknown method ''"),
        (["--intra-domain", "ptb", "--set", "hebb.gamma=1"], "unknown setting 'hebb.gamma'"),
        (["--intra-domain", "ptb", "--set", "hebb"], "has no value"),
        (["--intra-domain", "ptb", "--set", "hebb.beta=1"], "hebb.beta = 1 must be a number at least 0 and below 1"),
        (["--intra-domain", "ptb", "--set", "base.lr=-1"], "base.lr = -1 must be a number at least 0"),
        (
            ["--intra-domain", "ptb", "--set", "dynamic.lr=-1"],
            "dynamic.lr = -1 must be a number at least 0 or",
        ),
        (["--intra-domain", "ptb", "--k", "0"], "k = 0 must be at least 1"),
        (["--intra-domain", "ptb", "--k", "many"], "many"),
        (["--intra-domain", "ptb", "--update-every", "0"], "update_every = 0 must be at least 1"),
        (["--intra-domain", "ptb", "--max-tokens", "-5"], "max_tokens = -5 must be at least 1"),
        (["--intra-domain", "ptb", "--unk-share", "1"], "unk_share = 1.0"),
        (["--intra-domain", "ptb", "--unk-share", "0.3"], "unk_share = 0.3 changes nothing of vocabulary union"),
        (["--intra-domain", "ptb", "--split", "train"], "unknown split 'train'"),
        (["--intra-domain", "ptb", "--vocabulary", "closed"], "closed"),
        (["--intra-domain", "ptb", "--frequency-edges", "100", "50"], "[100, 50]"),
        (["--intra-domain", "ptb", "--frequency-edges", "10,x"], "frequency edges [10, 'x'] must be"),
        (["--intra-domain", "ptb", "--hyperparameters", "mine.json"], "mine.json"),
        (["--intra-domain", "ptb", "--config", "absent.yaml"], "absent.yaml"),
        (["--intra-domain", "ptb", "--device", "tpu"], "unknown device 'tpu'"),
        (["--intra-domain", "ptb", "--log-samples"], "--output-path"),
        (["--intra-domain", "ptb", "--colour", "red"], "colour"),
        (["--text", "text.txt"], "--checkpoint DIR"),
    ],
)
def test_evaluation_says_what_is_wrong(arguments: list[str], told: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "empty.txt").write_text("")
    before = tree(tmp_path)
    output = [] if "--log-samples" in arguments else ["--output-path", "out/deeper"]
    refused(evaluate, [*arguments, *output], capsys, told)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("main", "arguments", "told"),
    [
        (train, ["--corpus", "klingon"], "unknown corpus 'klingon'"),
        (train, ["--corpus", "text:empty.txt"], "empty.txt is empty"),
        (train, [], "corpus"),
        (
            train,
            ["--corpus", "pydoc", "--processes", "2"],
            "torchrun --nproc-per-node P -m hebblm.cli.train ...",
        ),
        (train, ["--corpus", "pydoc", "--lr", "0"], "lr = 0.0 must be positive"),
        (train, ["--corpus", "pydoc", "--finetune-from-model", "tiny-pydoc-raw"], "needs --output-path"),
        (train, ["--corpus", "pydoc", "--finetune-from-model", ".", "--output-path", "m"], "has no config.json"),
        (train, ["--corpus", "pydoc", "--finetune-from-model", "a/b", "--output-path", "m"], "a/b is no AWD-LSTM"),
        (tune, ["--intra-domain", "klingon", "--output-path", "out"], "unknown corpus 'klingon'"),
        (tune, ["--intra-domain", "ptb", "--split", "test"], "must not be tuned on"),
        (tune, ["--intra-domain", "ptb", "--k", "0"], "k = 0 must be at least 1"),
        (tune, ["--intra-domain", "ptb", "--around", "nowhere.json"], "nowhere.json does not exist"),
        (report, ["empty.txt"], "empty.txt is not valid JSON"),
    ],
)
def test_other_commands_say_what_is_wrong(
    main: Main, arguments: list[str], told: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "empty.txt").write_text("")
    before = tree(tmp_path)
    refused(main, arguments, capsys, told)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(("option", "value"), [("--preset", "huge"), ("--arch", "gpt"), ("--epochs", "0")])
def test_training_refuses_what_it_does_not_know(
    world: World, tmp_path: Path, capsys: Capture, option: str, value: str
) -> None:
    arguments = ["--corpus", str(world.prepared), "--output-path", "model", option, value]
    refused(train, arguments, capsys, value)
    assert not tree(tmp_path)


def test_an_unknown_preset_in_an_evaluation(world: World, capsys: Capture) -> None:
    refused(evaluate, ["--intra-domain", str(world.prepared), "--preset", "huge"], capsys, "unknown preset 'huge'")


def test_text_that_is_not_utf8(world: World, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "latin.txt").write_bytes(b"a line\n" * 40 + b"caf\xe9 au lait\n")
    told = "latin.txt is not UTF-8: byte 283 is 0xe9"
    for main, arguments in (
        (train, ["--corpus", "text:latin.txt", "--output-path", "model"]),
        (preprocess, ["--text", "latin.txt", "--output-path", "corpus"]),
        (evaluate, ["--checkpoint", str(world.model), "--text", "latin.txt", "--output-path", "out"]),
    ):
        refused(main, arguments, capsys, told, work_before=True)
        assert [path.name for path in tmp_path.iterdir()] == ["latin.txt"]


def test_a_named_corpus_with_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    (tmp_path / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "ptb" / f"{split}.txt").write_text(" no it was n't black monday \n")
    monkeypatch.setenv("HEBBLM_DATA", str(tmp_path))
    refused(evaluate, ["--intra-domain", "ptb"], capsys, "train.txt has sha256", "put the original file there")


def test_a_prepared_corpus_that_was_changed(world: World, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(world.prepared, tmp_path / "corpus")
    path = tmp_path / "corpus" / "test.bin"
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")
    refused(evaluate, ["--intra-domain", "corpus"], capsys, "test.bin")


def test_no_network(tmp_path: Path, capsys: Capture) -> None:
    arguments = ["--intra-domain", "wt2", "--output-path", "out"]
    refused(evaluate, arguments, capsys, "cannot download the train split of wt2", "HEBBLM_DATA", work_before=True)
    assert not tree(tmp_path)


def test_no_network_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def unreachable(*arguments: object) -> None:
        raise ConnectionError(f"Couldn't reach {arguments[0]!r} on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    refused(evaluate, ["--intra-domain", "hf:some/text"], capsys, "hf:some/text", "check the name and the network")
    assert not tree(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (evaluate, ["--intra-domain", "pydoc"]),
        (tune, ["--intra-domain", "pydoc"]),
        (train, ["--corpus", "pydoc"]),
    ],
)
def test_no_cuda(main: Main, arguments: list[str], capsys: Capture) -> None:
    refused(main, [*arguments, "--device", "cuda"], capsys, "torch sees no CUDA device")


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def pickled(folder: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, folder / "model.safetensors")


def another_format(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(3)}, folder / "model.safetensors", {"format": "pt"})


def other_weights(folder: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = folder / "model.safetensors"
    with safe_open(path, framework="pt") as stream:
        header, tensors = stream.metadata(), {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    tensors["bias"][0] += 1
    save_file(tensors, path, header)


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"format": ')


def absent(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (truncate, "is truncated or was changed"),
        (pickled, "is truncated or not a safetensors file"),
        (another_format, "has format 'pt', not 'awd-lstm/1'"),
        (other_weights, "was changed since"),
        (broken_config, "config.json is not valid JSON"),
        (absent, "no checkpoint at"),
    ],
)
def test_a_spoilt_checkpoint(
    world: World, tmp_path: Path, capsys: Capture, spoil: Callable[[Path], None], told: str
) -> None:
    shutil.copytree(world.model, tmp_path / "model")
    spoil(tmp_path / "model")
    before = tree(tmp_path)
    arguments = ["--intra-domain", str(world.prepared), "--checkpoint", "model", "--output-path", "out"]
    refused(evaluate, arguments, capsys, told)
    assert tree(tmp_path) == before


def test_a_checkpoint_of_another_dictionary(world: World, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["--intra-domain", str(world.other_prepared), "--checkpoint", str(world.model)]
    refused(evaluate, arguments, capsys, "was trained with dictionary")
    assert not tree(tmp_path)


@pytest.mark.parametrize("recipe", [["--epochs", "2"], ["--epochs", "1", "--precision", "float32"]])
def test_training_leaves_another_model_alone(world: World, recipe: list[str], capsys: Capture) -> None:
    before = tree(world.model)
    arguments = ["--corpus", str(world.prepared), "--preset", "tiny", *recipe]
    refused(train, [*arguments, "--output-path", str(world.model)], capsys, "already holds another model")
    assert tree(world.model) == before


def test_a_memory_of_another_model(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))
    arguments = [
        "--intra-domain",
        str(world.prepared),
        "--checkpoint",
        str(world.model),
        "--max-tokens",
        "20",
    ]
    arguments += ["--methods", "lstm,mixture", "--device", "cpu"]
    assert evaluate(arguments) == 0
    (manifest,) = (cache_dir() / "memory").glob("*/manifest.json")
    document = json.loads(manifest.read_text())
    del document[SEAL]
    write_json(manifest, {**document, "model_hash": "0" * 64}, seal=True)
    refused(evaluate, [*arguments, "--output-path", "out"], capsys, "belongs to another model", work_before=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["file.txt/out", "/proc/out"])
def test_no_permission_at_the_output_path(world: World, tmp_path: Path, capsys: Capture, place: str) -> None:
    (tmp_path / "file.txt").write_text("a file\n")
    before = tree(tmp_path)
    corpus, model = str(world.prepared), str(world.model)
    commands: list[tuple[Main, list[str]]] = [
        (evaluate, ["--intra-domain", corpus, "--checkpoint", model, "--output-path", place]),
        (tune, ["--intra-domain", corpus, "--checkpoint", model, "--output-path", place]),
        (train, ["--corpus", corpus, "--preset", "tiny", "--output-path", place]),
        (preprocess, ["--text", str(world.other), "--output-path", place]),
    ]
    for main, arguments in commands:
        refused(main, arguments, capsys, f"cannot write {place}", work_before=main is preprocess)
    assert tree(tmp_path) == before


def test_no_space_while_preprocessing(world: World, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["--text", str(world.text), "--output-path", str(tmp_path / "corpus")]
    with files_no_longer_than(10_000):
        refused(preprocess, arguments, capsys, "cannot write", work_before=True)
    assert not tree(tmp_path)


def test_no_space_while_training(world: World, tmp_path: Path, capsys: Capture) -> None:
    arguments = [
        "--corpus",
        str(world.prepared),
        "--preset",
        "tiny",
        "--output-path",
        str(tmp_path / "model"),
    ]
    with files_no_longer_than(100_000):
        refused(train, [*arguments, "--device", "cpu"], capsys, "cannot write", work_before=True)
    assert not [path for path in tree(tmp_path) if "safetensors" in path]


def test_no_space_for_a_result(world: World, tmp_path: Path, capsys: Capture) -> None:
    arguments = [
        "--intra-domain",
        str(world.prepared),
        "--checkpoint",
        str(world.model),
        "--max-tokens",
        "50",
    ]
    arguments += ["--methods", "lstm,cache", "--log-samples", "--device", "cpu", "--output-path", "out"]
    with files_no_longer_than(500):
        refused(evaluate, arguments, capsys, "cannot write", work_before=True)
    assert not [path for path, content in tree(tmp_path).items() if content is not None]
