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
from safetensors import safe_open
from safetensors.torch import save_file

from hebblm.io.download import cache_dir
from hebblm.io.files import CHECKSUM, write_json

from .conftest import World, main_of, refused, run, tree

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of odd texts, where no ``data/`` is, with no data named and no network to
    fetch it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEBBLM_DATA", raising=False)
    monkeypatch.setenv("HEBBLM_MIRROR", "http://127.0.0.1:9")
    for name in ("texts", "empty"):
        Path(name).mkdir()
    Path("texts/a.txt").write_text("The function frobnitz returns a list .\n")
    Path("texts/c.png").write_bytes(b"\xff")
    Path("empty.txt").touch()
    Path("latin.txt").write_bytes(b"caf\xe9\n" * 20)
    Path("novel.txt").write_text("the river carried a small boat past old houses\n" * 40)


TINY = "tiny-pydoc-raw"
PTB = "eval --intra-domain ptb"
BUILD = f"memory build --device cpu --output-path m --model {TINY} --text"
READ = f"read {TINY}"
PREPROCESS = "preprocess --output-path out --text novel.txt"
SCENARIO = "--checkpoint {model} --target {other} --device cpu"
LLAMA = "eval --model {llama}/model --text {llama}/text.txt"
MISTAKES = [
    ("eval", "name one scenario"),
    (f"{PTB} --cross-domain wt2-to-ptb", "name one scenario"),
    ("eval --cross-domain wt2", "A-to-B"),
    ("eval --intra-domain klingon", "unknown corpus 'klingon'"),
    ("eval --intra-domain text:absent.txt", "absent.txt does not exist"),
    ("eval --intra-domain text:empty.txt", "empty.txt is empty"),
    ("eval --intra-domain {prepared} --preset huge", "unknown preset 'huge'"),
    ("eval --text text.txt", "--checkpoint DIR"),
    (f"{PTB} --methods lstm,gpt", "unknown method 'gpt'"),
    (f"{PTB} --methods lstm,lstm", "each method once"),
    (f"{PTB} --methods ''", "unknown method ''"),
    (f"{PTB} --set hebb.gamma=1", "unknown setting 'hebb.gamma'"),
    (f"{PTB} --set hebb", "has no value"),
    (f"{PTB} --set hebb.beta=1", "hebb.beta = 1 must be a number at least 0 and below 1"),
    (f"{PTB} --set dynamic.lr=-1", "dynamic.lr = -1 must be a number at least 0"),
    (f"{PTB} --k 0", "k = 0 must be at least 1"),
    (f"{PTB} --k many", "many"),
    (f"{PTB} --unk-share 1", "unk_share = 1.0"),
    (f"{PTB} --unk-share 0.3", "unk_share = 0.3 has no effect with vocabulary union"),
    (f"{PTB} --split train", "unknown split 'train'"),
    (f"{PTB} --vocabulary closed", "closed"),
    (f"{PTB} --frequency-edges 100 50", "[100, 50]"),
    (f"{PTB} --frequency-edges 10,x", "frequency edges [10, 'x'] must be"),
    (f"{PTB} --hyperparameters mine.json", "mine.json"),
    (f"{PTB} --config absent.yaml", "absent.yaml"),
    (f"{PTB} --device tpu", "unknown device 'tpu'"),
    (f"{PTB} --log-samples", "--output-path"),
    (f"{PTB} --colour red", "colour"),
    (f"{LLAMA} --context 65", "context = 65"),
    (f"{LLAMA} --vocabulary open", "--vocabulary open"),
    (f"{LLAMA} --checkpoint small-ptb", "two models"),
    (f"{LLAMA} --dynamic-parameters nothing", "'nothing'"),
    ("eval --model {llama}/model --intra-domain ptb", "--target"),
    ("eval --model {llama}/model --text nowhere.txt", "nowhere.txt"),
    ("eval --model small-pbt --text novel.txt", "did you mean small-ptb"),
    (f"eval {SCENARIO} --log-neighbors -1 --log-samples --output-path o", "log_neighbors = -1"),
    (f"eval {SCENARIO} --log-neighbors 5", "--log-samples"),
    (f"eval {SCENARIO} --streams 0", "streams = 0"),
    (f"eval {SCENARIO} --streams 2 --vocabulary open", "open"),
    (f"eval {SCENARIO} --streams 2 --set base.lr=0.1", "base.lr=0.1"),
    (f"eval {SCENARIO} --streams 2 --log-samples --log-neighbors 5 --output-path o", "neighbors"),
    (f"tune {SCENARIO} --streams 2", "tuned on a single stream"),
    ("train --corpus klingon", "unknown corpus 'klingon'"),
    ("train --corpus text:empty.txt", "empty.txt is empty"),
    ("train", "corpus"),
    ("train --corpus pydoc --processes 2", "torchrun --nproc-per-node P -m hebblm.cli.train ..."),
    ("train --corpus pydoc --lr 0", "lr = 0.0 must be positive"),
    (f"train --corpus pydoc --finetune-from-model {TINY}", "needs --output-path"),
    ("train --corpus pydoc --finetune-from-model . --output-path m", "has no config.json"),
    ("train --corpus pydoc --finetune-from-model a/b --output-path m", "a/b is not an AWD-LSTM"),
    ("train --corpus {prepared} --output-path model --preset huge", "huge"),
    ("train --corpus {prepared} --output-path model --arch gpt", "gpt"),
    ("train --corpus {prepared} --output-path model --epochs 0", "0"),
    ("tune --intra-domain klingon --output-path out", "unknown corpus 'klingon'"),
    ("tune --intra-domain ptb --split test", "tuning must not read the split"),
    ("tune --intra-domain ptb --around nowhere.json", "nowhere.json does not exist"),
    ("report empty.txt", "empty.txt is not valid JSON"),
    ("read tiny-pydc", "did you mean tiny-pydoc-raw"),
    (f"{READ} nowhere.txt", "nowhere.txt does not exist"),
    (f"{READ} --method mxture", "did you mean mixture"),
    (f"{READ} --method all", "choose from base, "),
    (f"{READ} --words 0", "words = 0 must be at least 1"),
    (f"{READ} --max-tokns 9", "did you mean --max-tokens?"),
    (f"{READ} empty.txt", "empty.txt is empty; put text into it"),
    (f"{READ} /dev/null empty.txt", "empty.txt is empty; put text into it"),
    (f"{READ} --memory nowhere --suggest a", "nowhere"),
    (f"{READ} --set hebb.bta=1 --suggest a", "hebb.beta"),
    (f"{READ} --read-only --save x", "--read-only learns nothing that --save x could keep"),
    ("memory bild", "did you mean build"),
    (f"{BUILD} nowhere", "nowhere does not exist"),
    (f"{BUILD} empty", "empty holds no file of text (.txt, .jsonl"),
    (f"{BUILD} texts --output-path texts", "texts does not hold a memory"),
    (f"{BUILD} texts --set hebb.beta=0.5", "hebb.beta has no effect on a memory"),
    (f"{BUILD} texts --set memory.indx=exact", "memory.index"),
    ("memory info texts", "texts holds no saved memory"),
    ("preprocess --output-path out --text latin.txt", "latin.txt is not UTF-8: byte 3"),
    ("preprocess --output-path . --text novel.txt", "holds other files ("),
    (f"{PREPROCESS} --tokenizer spacy", "spacy"),
    (f"{PREPROCESS} --normalization title", "title"),
    (f"{PREPROCESS} --min-count 0", "at least 1"),
    (f"{PREPROCESS} --tokenizer moses --lang xx", "xx"),
]
AFTER_WORK = [  # progress bars, or what is told of a text, may stand above the line
    (f"eval {SCENARIO} --streams 500 --max-tokens 50 --methods lstm", "streams = 500"),
    (
        f"eval {SCENARIO} --log-neighbors 5 --log-samples --methods lstm --output-path o",
        "look up no neighbours",
    ),
    (f"{BUILD} empty.txt", "no text to remember"),
    (f"{BUILD} texts/c.png", "texts/c.png is not UTF-8"),
    (f"{PREPROCESS} --tokenizer sentencepiece", "cannot learn 8000 pieces"),
    ("train --corpus text:latin.txt --output-path model", "latin.txt is not UTF-8: byte 3 is 0xe9"),
    (
        "eval --checkpoint {model} --text latin.txt --output-path out",
        "latin.txt is not UTF-8: byte 3 is 0xe9",
    ),
    ("eval --intra-domain wt2 --output-path out", "cannot download the train split of wt2"),
]


@pytest.mark.parametrize(("line", "told"), [*MISTAKES, *AFTER_WORK])
def test_a_mistake_is_one_line(
    line: str, told: str, world: World, llama: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = tree(tmp_path)
    places = {
        "model": world.model,
        "prepared": world.prepared,
        "other": world.other_prepared,
        "llama": llama,
    }
    output = (
        ""
        if "--log" in line or "--output-path" in line or not line.startswith("eval")
        else " --output-path o/p"
    )
    refused(capsys, line.format(**places) + output, told, work_before=(line, told) in AFTER_WORK)
    assert tree(tmp_path) == before


def test_memories_that_do_not_belong_together(tmp_path: Path, capsys: Capture) -> None:
    for name, more in (
        ("one", ""),
        ("half", "--set memory.dtype=float16"),
        ("other", "--model llama-wt2-small"),
    ):
        assert run(f"{BUILD} texts --output-path {name} {more}") == 0
    before = tree(tmp_path)
    for line, told in (
        ("one texts --output-path m", "texts holds no saved memory"),
        ("one other --output-path m", "belongs to another model"),
        ("one half --output-path m", "one has memory.dtype=float32 and half memory.dtype=float16"),
        ("one one --output-path texts", "texts does not hold a memory"),
    ):
        refused(capsys, f"memory merge {line}", told)
    assert tree(tmp_path) == before


def test_a_named_corpus_with_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "ptb" / f"{split}.txt").write_text(" no it was n't black monday \n")
    monkeypatch.setenv("HEBBLM_DATA", str(tmp_path))
    refused(capsys, PTB, "train.txt has sha256", "put the original file there")


def test_a_prepared_corpus_that_was_changed(world: World, capsys: Capture) -> None:
    shutil.copytree(world.prepared, "corpus")
    path = Path("corpus/test.bin")
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")
    refused(capsys, "eval --intra-domain corpus", "test.bin")


def test_no_network_to_the_hub(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def unreachable(*arguments: object) -> None:
        raise ConnectionError(f"Couldn't reach {arguments[0]!r} on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    refused(
        capsys, "eval --intra-domain hf:some/text", "hf:some/text", "check the name and the network"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    "line", ["eval --intra-domain pydoc", "tune --intra-domain pydoc", "train --corpus pydoc"]
)
def test_no_cuda(line: str, capsys: Capture) -> None:
    refused(capsys, f"{line} --device cuda", "torch finds no CUDA device")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def pickled(path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, path)


def another_format(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"})


def other_weights(path: Path) -> None:
    with safe_open(path, framework="pt") as stream:
        header = stream.metadata()
        tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    tensors["bias"][0] += 1
    save_file(tensors, path, header)


def broken_config(path: Path) -> None:
    path.with_name("config.json").write_text('{"format": ')


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (truncate, "is truncated or was changed"),
        (pickled, "is truncated or not a safetensors file"),
        (another_format, "has format 'pt', not 'awd-lstm/1'"),
        (other_weights, "was changed since"),
        (broken_config, "config.json is not valid JSON"),
        (Path.unlink, "no checkpoint at"),
    ],
)
def test_a_spoilt_checkpoint(
    world: World, tmp_path: Path, capsys: Capture, spoil: Callable[[Path], None], told: str
) -> None:
    shutil.copytree(world.model, tmp_path / "model")
    spoil(tmp_path / "model" / "model.safetensors")
    before = tree(tmp_path)
    refused(
        capsys, f"eval --intra-domain {world.prepared} --checkpoint model --output-path out", told
    )
    assert tree(tmp_path) == before


def test_a_checkpoint_of_another_dictionary(world: World, capsys: Capture) -> None:
    line = f"eval --intra-domain {world.other_prepared} --checkpoint {world.model}"
    refused(capsys, line, "was trained with dictionary")


@pytest.mark.parametrize("recipe", ["--epochs 2", "--epochs 1 --precision float32"])
def test_training_leaves_another_model_alone(world: World, recipe: str, capsys: Capture) -> None:
    before = tree(world.model)
    line = f"train --corpus {world.prepared} --preset tiny {recipe} --output-path {world.model}"
    refused(capsys, line, "already holds another model")
    assert tree(world.model) == before


def test_a_memory_of_another_model(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))
    line = (
        f"eval --intra-domain {world.prepared} --checkpoint {world.model} --max-tokens 20 --device "
        "cpu"
    )
    line += " --methods lstm,mixture"
    assert run(line) == 0
    (manifest,) = (cache_dir() / "memory").glob("*/manifest.json")
    document = json.loads(manifest.read_text())
    del document[CHECKSUM]
    write_json(manifest, {**document, "model_hash": "0" * 64}, seal=True)
    refused(capsys, f"{line} --output-path out", "belongs to another model", work_before=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["novel.txt/out", "/proc/out"])
def test_no_permission_at_the_output_path(
    world: World, tmp_path: Path, capsys: Capture, place: str
) -> None:
    before = tree(tmp_path)
    for line in (
        f"eval --intra-domain {world.prepared} --checkpoint {world.model}",
        f"tune --intra-domain {world.prepared} --checkpoint {world.model}",
        f"train --corpus {world.prepared} --preset tiny",
        f"preprocess --text {world.other}",
    ):
        told = f"cannot write {place}"
        refused(
            capsys, f"{line} --output-path {place}", told, work_before=line.startswith("preprocess")
        )
    assert tree(tmp_path) == before


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
    ("size", "line", "absent"),
    [
        (10_000, "preprocess --text {text} --output-path out", "out"),
        (100_000, "train --corpus {prepared} --preset tiny --output-path out --device cpu",
        "safetensors"),
        (500, "eval --intra-domain {prepared} --checkpoint {model} --max-tokens 50 --methods "
            "lstm,cache --log-samples"
         " --device cpu --output-path out", "out/"),
    ],
)  # fmt: skip
def test_no_space(
    size: int, line: str, absent: str, world: World, tmp_path: Path, capsys: Capture
) -> None:
    with files_no_longer_than(size):
        line = line.format(text=world.text, prepared=world.prepared, model=world.model)
        refused(capsys, line, "cannot write", work_before=True)
    assert not [path for path in tree(tmp_path) if absent in path.removeprefix(str(tmp_path))]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("online --seeds 1", "2 processes are more than --seeds 1"),
        ("timing", "2 processes would slow each other down; run timing in one"),
    ],
)
def test_ranks_that_have_nothing_to_do_are_refused(
    arguments: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert main_of("vision")([*arguments.split(), "--output-path", "out"]) == 2
    assert told in capsys.readouterr().err
    assert not Path("out").exists()
