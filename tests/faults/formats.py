"""The formats that are read: a small sample of each, and what reading it gives."""

from __future__ import annotations

import gzip
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import hebblm
from awd_lstm import AWDLSTM, AWDLSTMConfig, load_checkpoint, read_config, save_checkpoint
from awd_lstm import checkpoint as training_state
from hebblm.cli.common import parse
from hebblm.cli.eval import EvalConfig
from hebblm.evaluation.defaults import TunedFile
from hebblm.io.files import sha256, write_json
from hebblm.memory import DiskMemory, FlatMemory, load_memory, save_memory
from hebblm.memory.persistence import read_about
from hebblm.models.catalog import checkpoint_dictionary
from hebblm.report import Result, TokenLosses
from hebblm.report.result.tokens import FILES, load_neighbors
from hebblm.text import prepare
from hebblm.text.corpora import text_corpus
from hebblm.text.dictionary import Dictionary
from hebblm.text.prepared import load_prepared
from hebblm.vision import state as vision_state
from hebblm.vision.data import load_cifar100, load_mnist

from ..support.gguf_file import write_gguf
from ..unit.models.architectures import random_model, tokenizer
from ..unit.report.samples import sample_result, sample_tokens
from ..unit.report.test_tokens import write_parquet
from ..unit.vision.samples import archive, cifar_record
from .sandbox import words


@dataclass(frozen=True)
class Format:
    """A format: a sample of it is made in a folder, and read as something that can be compared."""

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], Any]
    files: tuple[str, ...]  # below the folder, that are damaged
    hashed: bool = True  # other content than was written is to be noticed


def make_corpus(folder: Path) -> None:
    """Write a text and its ids."""
    (folder / "text.txt").write_text(words(60))
    prepare(text_corpus(folder / "text.txt"), normalization="raw", destdir=folder / "corpus")


def read_corpus(folder: Path) -> Any:
    """Return dictionary, description and ids."""
    found = load_prepared(folder / "corpus")
    ids = [found.tokens(split).tobytes() for split in found.meta.splits]
    return found.dictionary.symbols, found.dictionary.counts, found.meta, ids


def make_checkpoint(folder: Path) -> None:
    """Write a model, its description and its dictionary."""
    (folder / "dict.txt").write_text("a 3\nb 2\n<eos> 1\n<unk> 0\n")
    torch.manual_seed(0)
    corpus = {
        "name": "text:x", "normalization": "raw", "tokenizer": {"name": "whitespace"},
        "train_tokens": 6,
        "dictionary_file_sha256": sha256(folder / "dict.txt"),
    }  # fmt: skip
    training = {"corpus": corpus, "epoch": 3, "valid_perplexity": 9.5}
    model = AWDLSTM(AWDLSTMConfig(4, 4, 6, 2))
    save_checkpoint(folder, model, dictionary_sha256="ab" * 32, training=training)


def read_checkpoint(folder: Path) -> Any:
    """Return weights, dictionary and what is asked of the description."""
    document, words = read_config(folder), checkpoint_dictionary(folder)
    model = load_checkpoint(folder, dictionary_sha256="ab" * 32)
    weights = {name: value.numpy().tobytes() for name, value in model.state_dict().items()}
    # Nothing is asked of a description that is empty: its model has the hash of its weights inside.
    return (
        weights,
        model.config,
        words.symbols,
        words.counts,
        document.get("training", {}).get("corpus"),
    )


def make_memory(folder: Path) -> None:
    """Write a memory of 40 entries."""
    memory = FlatMemory(8)
    memory.add(torch.randn(40, 8, generator=torch.Generator().manual_seed(1)), torch.arange(40))
    about = {"model": "m", "known": 30, "words": ["u", "v"], "texts": [{"path": "x", "bytes": 3}]}
    save_memory(memory, folder / "memory", model_hash="m", dictionary_hash="d", about=about)


def make_disk(folder: Path) -> None:
    """Write a memory on disk of 400 entries, with its index."""
    draw = torch.Generator().manual_seed(1)
    memory = DiskMemory(8, "IVF4,SQ8")
    memory.add(
        torch.randn(400, 8, generator=draw), torch.arange(400), torch.randn(400, generator=draw)
    )
    save_memory(memory, folder / "memory", model_hash="m", dictionary_hash="d")


def read_disk(folder: Path) -> Any:
    """Return entries, and what is found among them."""
    memory = load_memory(folder / "memory", model_hash="m", dictionary_hash="d")
    (part,) = memory.segments()
    near = memory.search(torch.ones(1, 8), 20)
    held = [each.tolist() for each in (part.keys, part.values, part.norms, part.log_normalizers)]
    return held, near.values.tolist(), near.distances.tolist()


def read_memory(folder: Path) -> Any:
    """Return entries and what stands beside them."""
    memory = load_memory(folder / "memory", model_hash="m", dictionary_hash="d")
    (part,) = memory.segments()
    return part.keys.numpy().tobytes(), part.values.tolist(), read_about(folder / "memory")


def make_state(folder: Path) -> None:
    """Write the state of a training."""
    tensors = {"a": torch.arange(20.0), "b": torch.ones(3, dtype=torch.int64)}
    training_state.save_state(folder / "state", tensors, {"epoch": 3})
    vision_state.save_state(folder / "vision", tensors, {"run": "r", "epoch": 3})


def read_state(folder: Path) -> Any:
    """Return tensors and record of both kinds."""
    found = (
        training_state.load_state(folder / "state"),
        vision_state.load_state(folder / "vision", "r"),
    )
    return [
        ({name: value.tolist() for name, value in both[0].items()}, both[1])
        for both in found
        if both
    ]


def make_result(folder: Path) -> None:
    """Write a result with its tables."""
    write_parquet(folder / "tokens.parquet", sample_tokens(200))
    near = {"position": 1, "rank": 0, "from_stream": True, "place": 0, "label": "a",
    "distance": 0.5,
            "closeness": 2.0, "context": "b c"}  # fmt: skip
    pq.write_table(pa.Table.from_pylist([near]), folder / "neighbors.parquet")
    files = {path.name: sha256(path) for path in folder.glob("*.parquet")}
    replace(sample_result(200), extra={FILES: files}).save(folder)


def read_result(folder: Path) -> Any:
    found = Result.load(folder)
    return {key: value for key, value in found.to_json().items() if "sha256" not in key}


def read_tables(folder: Path) -> Any:
    """Return the losses and the neighbours that the result's hashes allow."""
    result = Result.load(folder)
    losses = TokenLosses.load(folder / "tokens.parquet", result)
    near = load_neighbors(folder / "neighbors.parquet", 200, result)
    return losses.words.tolist(), {name: nll.tobytes() for name, nll in losses.nll.items()}, near


def read_unverified(folder: Path) -> Any:
    """Return the same of a result of an earlier version."""
    losses = TokenLosses.load(folder / "tokens.parquet")
    return losses.words.tolist(), load_neighbors(folder / "neighbors.parquet", 200)


def make_reader(folder: Path) -> None:
    """Write a model, and a reader of it that has read a text."""
    words = Dictionary.vocabulary({"a": 3, "b": 2, "<eos>": 1})
    (folder / "model").mkdir()
    words.save(folder / "model" / "dict.txt")
    corpus = {"name": "text:x", "normalization": "raw", "tokenizer": {"name": "whitespace"},
              "dictionary_file_sha256": sha256(folder / "model" / "dict.txt")}  # fmt: skip
    torch.manual_seed(0)
    model = AWDLSTM(AWDLSTMConfig(len(words), 4, 6, 2))
    save_checkpoint(
        folder / "model", model, dictionary_sha256=words.hash(), training={"corpus": corpus}
    )
    reader = hebblm.load(folder / "model", device="cpu").reader("best", k=5)
    reader.read("a b c a b d a\n" * 8)
    reader.save(folder / "reader")


def read_reader(folder: Path) -> Any:
    """Return how a reader goes on from there."""
    reader = hebblm.load(folder / "model", device="cpu").reader(
        "best", memory=folder / "reader", k=5
    )
    return reader.vocabulary.words, reader.read("a b d c\n").nll.tolist()


def make_causal(folder: Path) -> None:
    """Write a random model of transformers with its tokenizer, as save_pretrained does."""
    random_model("Llama").save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def read_causal(folder: Path) -> Any:
    """Return losses of a text by such a model; its folder holds no hashes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            hebblm.load(folder, device="cpu")
            .reader("mixture", k=5)
            .read("a b c a b\n")
            .nll.tolist()
        )


def make_gguf(folder: Path) -> None:
    """Write a model as llama.cpp does."""
    write_gguf(folder / "tiny.gguf", "Q8_0")


def read_gguf(folder: Path) -> Any:
    """Return losses of a text by such a model, whose file holds no hash."""
    return (
        hebblm.load(folder / "tiny.gguf", device="cpu")
        .reader("mixture", k=5)
        .read("a b c a b\n")
        .nll.tolist()
    )


def make_options(folder: Path) -> None:
    """Write options and values."""
    (folder / "options.yaml").write_text(
        "cross_domain: wt2-to-ptb\nset: [hebb.beta=0.5, mbpa.lr=0.1]\nk: 100\nvalues: {mbpa.lr: "
        "3.0}\n"
        "seed: 7\nfrequency_edges: [1, 2]\nlog_samples: true\nmax_tokens: 100\n"
    )
    document = {"schema": "hebblm-tuned/1", "values": {"mbpa.lr": 3.0}, "scenario": {"source": "a"}}
    write_json(folder / "tuned.json", document)


def read_options(folder: Path) -> Any:
    """Return what a command would start from."""
    argv = ["--config", str(folder / "options.yaml")]
    config = parse(EvalConfig, argv, prog="hebblm-eval", description="Read.", example="hebblm-eval")
    return config, TunedFile.read(folder / "tuned.json")


def make_pictures(folder: Path) -> None:
    """Write four pictures in the layout of MNIST, and two of CIFAR-100 in both."""
    place = folder / "mnist"
    place.mkdir()
    for part in ("train", "t10k"):
        pixels = np.arange(4 * 28 * 28, dtype=np.uint8)
        head = (2051).to_bytes(4, "big") + b"".join(size.to_bytes(4, "big") for size in (4, 28, 28))
        (place / f"{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(head + pixels.tobytes(), mtime=0)
        )
        labels = (2049).to_bytes(4, "big") + (4).to_bytes(4, "big") + bytes(range(4))
        (place / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels, mtime=0))
    members = {f"cifar-100-binary/{name}.bin": cifar_record(7) for name in ("train", "test")}
    archive(folder / "cifar-100" / "cifar-100-binary.tar.gz", members)
    pickles = {
        f"cifar-100-python/{name}": b"cos\nsystem\n(S'false'\ntR." for name in ("train", "test")
    }
    archive(folder / "pickles" / "cifar-100" / "cifar-100-python.tar.gz", pickles)


def read_pictures(folder: Path) -> Any:
    """Return all pixels and classes."""
    parts = [part for read in (load_mnist, load_cifar100) for part in _parts(read([folder]))]
    return [(part.pixels.numpy().tobytes(), part.labels.tolist()) for part in parts]


def _parts(dataset: Any) -> tuple[Any, Any]:
    return dataset.train, dataset.test


FORMATS = (
    Format("dictionary", make_corpus, read_corpus, ("corpus/dict.txt",)),
    Format("binarised ids", make_corpus, read_corpus, ("corpus/train.bin", "corpus/test.bin")),
    Format("corpus.json", make_corpus, read_corpus, ("corpus/corpus.json",)),
    Format("weights", make_checkpoint, read_checkpoint, ("model.safetensors",)),
    Format("checkpoint's config.json and dictionary", make_checkpoint, read_checkpoint,
    ("config.json", "dict.txt")),
    Format("state of a training", make_state, read_state, ("state", "vision")),
    Format("memory manifest", make_memory, read_memory, ("memory/manifest.json",
    "memory/about.json")),
    Format("memory arrays", make_memory, read_memory, ("memory/keys.bin", "memory/values.bin")),
    Format("memory arrays on disk", make_disk, read_disk, tuple(f"memory/{name}" for name in (
        "keys.bin", "values.bin", "norms.bin", "log_normalizers.bin", "lists.bin", "index.faiss",
    ))),
    Format("result.json", make_result, read_result, ("result.json",)),
    Format("tokens and neighbours", make_result, read_tables, ("tokens.parquet",
    "neighbors.parquet")),
    Format("the same unhashed", make_result, read_unverified, ("tokens.parquet",
    "neighbors.parquet"), hashed=False),
    Format("options and values", make_options, read_options, ("options.yaml", "tuned.json"),
    hashed=False),
    Format("reader", make_reader, read_reader, ("reader/reader.json", "reader/place.safetensors")),
    Format("folder of transformers", make_causal, read_causal, (
        "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors",
        "generation_config.json",
    ), hashed=False),
    Format("GGUF file", make_gguf, read_gguf, ("tiny.gguf",), hashed=False),
    Format("pictures", make_pictures, read_pictures, (
        "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz",
        "cifar-100/cifar-100-binary.tar.gz",
    )),
)  # fmt: skip


def made(form: Format, folder: Path) -> Any:
    """Make the sample of a format anew, and return what reading it gives."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    form.make(folder)
    return form.read(folder)
