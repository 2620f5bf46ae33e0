"""``hebblm-memory``: memories of many texts: built, told about, merged."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from hebblm.cli.common import choosing, options, tell
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, parse_settings
from hebblm.evaluation.scenario_config import ModelOptions
from hebblm.files import lack
from hebblm.interrupts import GOES_ON, interrupted
from hebblm.models.catalog import model_folder
from hebblm.models.device import check_device
from hebblm.ranks import opened
from hebblm.text.sources import text_files

PROG = "hebblm-memory"


@dataclass(frozen=True)
class BuildConfig(ModelOptions):
    """Options of building a memory: which model remembers which texts.

    Args:
        model: name of a model that ships or is fetched, folder of a checkpoint, or a causal language model of
            transformers by hub id, folder or GGUF file.
        text: files of text or of records (.jsonl, .json, .csv, .tsv, .parquet), also compressed (.gz, .zst, .xz),
            folders of such files, or - for standard input.
        output_path: folder of the memory.
        column: of records that holds the text; by default text, or the only column of strings.
        set: how entries are kept and searched, e.g. --set memory.index=exact memory.dtype=float16.
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
        folder: of hebblm-memory, or of a reader.
    """

    folder: Path = field(metadata={"positional": True})


@dataclass(frozen=True)
class MergeConfig:
    """Options of merging two memories.

    Args:
        first: folder of hebblm-memory, or of a reader; the merged memory is kept and searched as this one.
        second: another, of the same model.
        output_path: folder of the merged memory.
    """

    first: Path = field(metadata={"positional": True})
    second: Path = field(metadata={"positional": True})
    output_path: Path


@options(f"{PROG} build", BuildConfig, f"{PROG} build --model small-wt2-raw --text novels --output-path memories")
@interrupted(GOES_ON)
def _build(config: BuildConfig, argv: list[str]) -> int:
    """Remember texts: hidden states of a model and the words that followed. Interrupted, it goes on."""
    check_device(config.device)
    model_folder(config.model)
    settings = parse_settings(config.set)
    for name in settings:
        if not name.startswith("memory."):
            raise UserError(f"--set {name} changes no memory; what does begins with memory.")
    kept = Hyperparameters().changed(settings).memory
    from hebblm.corpus_memory import build
    from hebblm.language_model import load

    files = text_files(config.text, config.column)
    with opened(config.device) as ranks:
        lm = load(
            config.model,
            device=config.device,
            dtype=config.dtype,
            context=config.context,
            stride=config.stride,
        )
        vocabulary = lm.vocabulary.fresh(config.tokenizer)
        memory = build(lm.model, vocabulary, files, config.output_path, kept, name=lm.name, ranks=ranks)
    tell(f"{len(memory):,} entries in {config.output_path}; hebblm-read {config.model} --memory {config.output_path}")
    return 0


@options(f"{PROG} info", InfoConfig, f"{PROG} info memories/novels")
def _info(config: InfoConfig, argv: list[str]) -> None:
    """Tell what a memory holds, and check that its files are whole."""
    if not config.folder.is_dir():
        raise UserError(f"{config.folder} {lack(config.folder)}; name the folder of a memory")
    from hebblm.corpus_memory import SavedMemory

    memory = SavedMemory.of(config.folder)
    split = memory.about.get("tokenizer", "own")
    manifest, texts = memory.manifest, memory.about.get("texts", [])
    index = "compares all entries" if manifest.index is None or not manifest.index.spec else manifest.index.spec
    rows: dict[str, object] = {
        "entries": f"{manifest.count:,} of width {manifest.dim:,}, {manifest.dtype}",
        "kept": "all" if manifest.capacity is None else f"the latest {manifest.capacity:,}",
        "search": index,
        "size": f"{sum(size for size, _ in manifest.files.values()) / 1e6:,.1f} MB, all files whole",
        "model": f"{memory.about.get('model') or 'unnamed'}, weights {manifest.model_hash[:12]}",
        "vocabulary": f"{manifest.dictionary_hash[:12]}, {len(memory.words):,} new words",
        "tokenizer": {"own": "the model's own", None: "that of a reader's first text"}.get(split, split),
        "texts": len(texts) or "not recorded",
    }
    for name, value in rows.items():
        tell(f"{name:<12}{value}")
    for text in texts:
        known = [f"{text['bytes']:,} bytes"] if "bytes" in text else []
        known += [f"column {text['column']}"] if text.get("column") else []
        tell(f"  {text.get('path', 'texts without a name')}{f' ({chr(44).join(known)})' if known else ''}")


@options(f"{PROG} merge", MergeConfig, f"{PROG} merge memories/a memories/b --output-path memories/both")
def _merge(config: MergeConfig, argv: list[str]) -> None:
    """Make one memory of two of the same model, the second's entries behind the first's."""
    from hebblm.corpus_memory import merge

    tell(f"{len(merge(config.first, config.second, config.output_path)):,} entries in {config.output_path}")


main = choosing(PROG, {"build": _build, "info": _info, "merge": _merge})


if __name__ == "__main__":
    sys.exit(main())
