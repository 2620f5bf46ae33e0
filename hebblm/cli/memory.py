"""``hebblm-memory``: build, inspect and merge memories of many texts; forget documents and
words.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from hebblm.adapt.methods import load_plugin
from hebblm.adapt.methods.ngram import NgramConfig
from hebblm.cli.common import choosing, options, print_line
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, parse_settings
from hebblm.evaluation.scenario_config import ModelOptions
from hebblm.io.files import lack
from hebblm.io.locks import file_lock
from hebblm.models.catalog import model_folder
from hebblm.models.device import check_device
from hebblm.runtime.interrupts import GOES_ON, interrupted
from hebblm.runtime.progress import bar
from hebblm.runtime.ranks import opened
from hebblm.text.sources import text_files

PROG = "hebblm-memory"


@dataclass(frozen=True)
class BuildConfig(ModelOptions):
    """Options of building a memory: which model remembers which texts.

    Args:
        model: name of a model that ships or is fetched, folder of a checkpoint, or a causal
            language model of transformers by hub id, folder or GGUF file.
        text: files of text or of records (.jsonl, .json, .csv, .tsv, .parquet), also compressed
            (.gz, .zst, .xz), folders of such files, or - for standard input.
        output_path: folder of the memory.
        column: column of records that holds the text; by default text, or the only column of
            strings.
        set: settings for keeping and searching entries, e.g. --set memory.index=exact
            memory.dtype=float16, and for counting n-grams, e.g. --set ngram.order=4.
    """

    model: Path
    text: list[Path] = field(metadata={"nargs": "+"})
    output_path: Path
    column: str | None = None
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})


@dataclass(frozen=True)
class InfoConfig:
    """Options of the description of a memory.

    Args:
        folder: folder of hebblm-memory, or of a reader.
    """

    folder: Path = field(metadata={"positional": True})


@dataclass(frozen=True)
class MergeConfig:
    """Options of merging two memories.

    Args:
        first: folder of hebblm-memory, or of a reader; the merged memory is kept and searched like
            this one.
        second: another such folder, of the same model.
        output_path: folder of the merged memory.
    """

    first: Path = field(metadata={"positional": True})
    second: Path = field(metadata={"positional": True})
    output_path: Path


@dataclass(frozen=True)
class ForgetConfig:
    """Options of forgetting.

    Args:
        folder: folder of a reader.
        document: names of documents, as hebblm-memory info lists them; an empty name means all text
            without a name.
        word: instead of documents, a word to strike out of all texts, in capital and small letters.
        replay: also forget with a method of dynamic evaluation, which learns weights from all
            texts.
        model: model of the reader, if its name or folder has changed.
        plugin: Python files that register your own methods.
        context: tokens of the window, as when the texts were read.
        stride: tokens by which the window moves on, as when the texts were read.
        dtype: number type of a transformers model's weights, as when the texts were read.
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1.
    """

    folder: Path = field(metadata={"positional": True})
    document: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    word: str | None = None
    replay: bool = False
    model: Path | None = None
    plugin: list[Path] = field(default_factory=list, metadata={"nargs": "+"})
    context: int | None = None
    stride: int | None = None
    dtype: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        if bool(self.document) == (self.word is not None):
            raise UserError("name what to forget: --document NAME, or --word WORD")


@options(
    f"{PROG} build",
    BuildConfig,
    f"{PROG} build --model small-wt2-raw --text novels --output-path memories",
)
@interrupted(GOES_ON)
def _build(config: BuildConfig, argv: list[str]) -> int:
    """Remember texts: hidden states of a model, the words that followed, and n-grams. Run it again
    to continue.
    """
    check_device(config.device)
    model_folder(config.model)
    settings = parse_settings(config.set)
    for name in settings:
        if not name.startswith("memory.") and name not in ("ngram.order", "ngram.capacity"):
            raise UserError(
                f"--set {name} has no effect on a memory; set memory.*, ngram.order or "
                "ngram.capacity"
            )
    Hyperparameters().changed(settings)  # refuses a wrong value before the model is loaded
    from hebblm.api.language_model import load
    from hebblm.memory.ngrams import NGrams
    from hebblm.reader.corpora import build

    files = text_files(config.text, config.column)
    with opened(config.device) as ranks:
        lm = load(
            config.model,
            device=config.device,
            dtype=config.dtype,
            context=config.context,
            stride=config.stride,
        )
        values = Hyperparameters().changed({**lm.defaults, **settings})
        vocabulary = lm.vocabulary.fresh(config.tokenizer)
        counted = values.methods[NgramConfig]
        ngrams = NGrams(counted.order, counted.capacity)
        memory = build(
            lm.model,
            vocabulary,
            files,
            config.output_path,
            values.memory,
            ngrams,
            name=lm.name,
            ranks=ranks,
        )
    print_line(
        f"{len(memory):,} entries in {config.output_path}; hebblm-read {config.model} --memory "
        f"{config.output_path}"
    )
    return 0


@options(f"{PROG} info", InfoConfig, f"{PROG} info memories/novels")
def _info(config: InfoConfig, argv: list[str]) -> None:
    """Show what a memory holds, and check that its files are whole."""
    if not config.folder.is_dir():
        raise UserError(f"{config.folder} {lack(config.folder)}; name the folder of a memory")
    from hebblm.memory.persistence import NGRAMS, read_ngrams
    from hebblm.reader.corpora import SavedMemory

    memory = SavedMemory.of(config.folder)
    split = memory.about.get("tokenizer", "own")
    manifest = memory.manifest
    texts = memory.about.get("texts", [])
    ngrams = "none"
    if counts := read_ngrams(memory.folder):
        tokens, order = counts["tokens"].tolist()
        size = manifest.files[NGRAMS][0] / 1e6
        ngrams = (
            f"{len(counts['counts']):,} of {tokens:,} tokens, after up to {order} words, "
            f"{size:,.1f} MB"
        )
    if manifest.index is None or not manifest.index.spec:
        index = "compares all entries"
    else:
        index = manifest.index.spec
    total = sum(size for size, _ in manifest.files.values())
    rows: dict[str, object] = {
        "entries": f"{manifest.count:,} of width {manifest.dim:,}, {manifest.dtype}",
        "kept": "all" if manifest.capacity is None else f"the latest {manifest.capacity:,}",
        "search": index,
        "n-grams": ngrams,
        "size": f"{total / 1e6:,.1f} MB, all files whole",
        "model": memory.about.get("model") or "unnamed",
        "new words": f"{len(memory.words):,}",
        "tokenizer": {"own": "the model's own", None: "that of a reader's first text"}.get(
            split, split
        ),
        "texts": len(texts) or "not recorded",
    }
    for name, value in rows.items():
        print_line(f"{name:<12}{value}")
    for text in texts:
        units = {"bytes": "bytes", "tokens": "tokens", "words": "new words"}
        known = []
        for key, unit in units.items():
            number = text.get(key)
            if number:
                known.append(f"{number:,} {unit[:-1] if number == 1 else unit}")
        if text.get("read"):
            known.append(f"read {text['read'][:16].replace('T', ' ')} UTC")
        if text.get("column"):
            known.append(f"column {text['column']}")
        said = f" ({', '.join(known)})" if known else ""
        print_line(f"  {text.get('path', 'texts without a name')}{said}")


@options(
    f"{PROG} merge", MergeConfig, f"{PROG} merge memories/a memories/b --output-path memories/both"
)
def _merge(config: MergeConfig, argv: list[str]) -> None:
    """Merge two memories of the same model, the second's entries after the first's."""
    from hebblm.reader.corpora import merge

    print_line(
        f"{len(merge(config.first, config.second, config.output_path)):,} entries in "
        f"{config.output_path}"
    )


@options(f"{PROG} forget", ForgetConfig, f"{PROG} forget memories/business --document minutes.txt")
@interrupted("nothing was changed")
def _forget(config: ForgetConfig, argv: list[str]) -> None:
    """Turn a reader into one that never read some documents, or that read all texts without a
    word.
    """
    for path in config.plugin:
        load_plugin(path)
    from hebblm.api.language_model import load
    from hebblm.memory.persistence import read_about
    from hebblm.reader.checkpoint import READER

    if not (config.folder / READER).is_file():
        raise UserError(
            f"{config.folder} does not hold a reader; name a folder that hebblm-read --save wrote"
        )
    name = config.model or read_about(config.folder, READER).get("model")
    if name is None:
        raise UserError(f"{config.folder} does not name its model; name it with --model")
    with file_lock(config.folder, "this memory", wait=False):
        lm = load(
            name,
            device=config.device,
            dtype=config.dtype,
            context=config.context,
            stride=config.stride,
        )
        reader = lm.reader(memory=config.folder)
        with bar() as progress:
            task = progress.add_task(
                "read the other texts again", total=None, unit="tokens", visible=False
            )
            reader.forget(
                *config.document,
                word=config.word,
                replay=config.replay,
                progress=lambda done, total: progress.update(
                    task, completed=done, total=total, visible=True
                ),
            )
        reader.save(config.folder)
    left = [document.tokens or 0 for document in reader.documents()]
    texts = "1 text" if len(left) == 1 else f"{len(left):,} texts"
    gone = config.word or ", ".join(name or "all text without a name" for name in config.document)
    print_line(
        f"{gone} is forgotten; {config.folder} now holds {texts}, {sum(left):,} tokens in all"
    )


main = choosing(PROG, {"build": _build, "info": _info, "merge": _merge, "forget": _forget})


if __name__ == "__main__":
    sys.exit(main())
