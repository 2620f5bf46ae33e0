"""Write the other files of this folder, as commit e6b924b1 does: the last one before settings,
packages and readers got their present names.

Run it with that commit in PYTHONPATH, in an empty folder. It trains nothing: the weights are drawn,
large enough for methods to differ.

The losses of readers in expected.json are those of that commit with one change: ``factored`` of
hebblm/adapt/solvers/fast.py starts from the directions of today, ``start_directions``.
"""

import json
from pathlib import Path

import torch

import hebblm
from awd_lstm import AWDLSTM, AWDLSTMConfig
from awd_lstm.checkpoint import save_checkpoint
from hebblm.cli.eval import main as evaluate
from hebblm.cli.memory import main as memory
from hebblm.cli.tune import main as tune
from hebblm.text import Dictionary

FIRST = "the array holds a list of values\nthe Frobnitz list holds a set of values\n" * 3
SECOND = "then the Frobnitz set holds the array\nand the Quux returns a list of values\n"
KNOWN = [
    "the",
    "array",
    "holds",
    "a",
    "list",
    "of",
    "values",
    "set",
    "and",
    "then",
    "returns",
    "shape",
    "type",
    "in",
    "as",
    "is",
]
READERS = {
    "reader": (
        "mixture+hebb",
        {"mbpa.pull": 0.05, "mbpa.closeness": "sum", "hebb.closeness": "sum"},
    ),
    "reader-best": ("best", {}),
    "reader-dynamic": ("dynamic+best", {"dynamic.rule": "sgd", "dynamic.lr": 0.01}),
}
"""Method and settings of each reader, by its folder."""


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    dictionary = Dictionary.vocabulary(dict.fromkeys(KNOWN, 5), min_count=0)
    model = AWDLSTM(AWDLSTMConfig(len(dictionary), 8, 12, 2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    corpus = {
        "name": "drawn", "normalization": "raw", "tokenizer": {"name": "whitespace"},
        "train_tokens": sum(dictionary.counts), "provenance": {},
    }  # fmt: skip
    save_checkpoint(folder, model, dictionary_sha256=dictionary.hash(), training={"corpus": corpus})
    dictionary.save(folder / "dict.txt")


def main() -> None:
    make_model(Path("model"))
    lm = hebblm.load("model", device="cpu")
    expected = {}
    for name, (method, settings) in READERS.items():
        reader = lm.reader(method, k=5, update_every=7, settings=settings)
        reader.read(FIRST, name="first")
        reader.save(name)
        suggested = [list(suggestion) for suggestion in reader.suggest("the ", 3)]
        expected[name] = {"suggested": suggested, "nll": reader.read(SECOND).nll.tolist()}

    text = Path("first.txt")
    text.write_text(4 * FIRST)
    built = ["--model", "model", "--text", "first.txt", "--output-path", "memory"]
    assert memory(["build", *built]) == 0
    reader = lm.reader("mixture", memory="memory", k=5)
    expected["memory"] = {"nll": reader.read(SECOND).nll.tolist()}

    run = [
        "--checkpoint",
        "model",
        "--text",
        "first.txt",
        "--max-tokens",
        "40",
        "--update-every",
        "7",
    ]
    settings = ["--set", "mbpa.pull=0.05", "mbpa.closeness=sum"]
    methods = ["--methods", "lstm,cache,mbpa,hebb,mixture+hebb", "--log-samples", "--check"]
    assert evaluate([*run, *settings, *methods, "--output-path", "run"]) == 0
    tuned = ["--methods", "mbpa", "--skip-dynamic", "--output-path", "tuned"]
    assert tune([*run, *tuned]) == 0
    for path in Path("run").iterdir():
        if path.name not in ("result.json", "tokens.parquet"):
            path.unlink()
    Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
