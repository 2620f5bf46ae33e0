"""``hebblm-read``: a reader reads a text, and shows its predictions before and after."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hebblm.adapt.methods import METHODS, check_methods, load_plugin, unaliased
from hebblm.cli.common import command
from hebblm.cli.prompt import Conversation, lines_of
from hebblm.cli.questions import Questions
from hebblm.cli.watch import Watch, check_watch, default_folder
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, parse_settings
from hebblm.evaluation.scenario_config import ReadingOptions, whole_number
from hebblm.io.files import check_writable, write_bytes
from hebblm.io.locks import file_lock
from hebblm.models.catalog import model_folder
from hebblm.models.device import check_device
from hebblm.reader.n_best import Line, rank_lists, read_lists
from hebblm.runtime.interrupts import interrupted
from hebblm.runtime.progress import bar, log, track
from hebblm.text.sources import TextFile, text_files, text_parts
from hebblm.text.vocabulary import warn_of_new

if TYPE_CHECKING:  # these load torch, and an error message must not wait for that
    from hebblm.api.language_model import LanguageModel
    from hebblm.reader.reader import Reader
    from hebblm.reader.scores import Totals

PROG = "hebblm-read"
PART_SIZE = 1 << 18  # characters that are read at once


@dataclass(frozen=True)
class ReadConfig(ReadingOptions):
    """Options of reading: the model, its texts, and the questions to it.

    Args:
        model: name of a model that ships or is fetched, folder of a checkpoint, or a causal
            language model of transformers by hub id, folder or GGUF file.
        files: files of text or of records (.jsonl, .json, .csv, .tsv, .parquet), also compressed
            (.gz, .zst, .xz), folders of such files, or - for standard input; they are read one
            after the other, and may be of any size; without files it only answers.
        column: column of records that holds the text; by default text, or the only column of
            strings.
        method: method of adaptation, e.g. knn, mbpa; by default best, or that of the reader in
            --memory.
        plugin: Python files that register your own methods, which --method then knows.
        suggest: text, e.g. "The function ": shows the words that come next, before and after
            reading. Letters after its last space begin the word, so that "The func" shows how the
            word goes on.
        explain: text, as for --suggest: shows why it suggests the next words, what each part of the
            method gives them, and the entries of the memory that weigh most.
        generate: a prompt: shows how random words go on with it, before and after reading.
        words: number of words to suggest, or to explain.
        new_tokens: number of tokens to generate: words, or pieces of words.
        temperature: temperature of --generate; 0 takes the most probable word each time.
        rank: file of alternatives, one JSON object per line with id, candidates of text and score,
            and the text before them, if any; after reading, each list is written best first, as
            JSON lines.
        ranked: file for the ranked lists; by default standard output, and all other output goes to
            standard error.
        prior_weight: weight of a candidate's own score, which is added to its log-probability in
            nats.
        memory: folder of an earlier --save, to go on from there, or of hebblm-memory. Its settings
            stay in force unless other options change them.
        read_only: score the texts without learning from them.
        save: folder for memory, new words and place.
        max_tokens: number of tokens to read of each file: words and ends of line, or the pieces of
            words that a model of transformers reads.
        update_every: tokens between two updates; by default 50, or that of the reader in --memory.
        k: neighbours of each query; by default 200, or that of the reader in --memory.
        set: hyper-parameters, e.g. --set hebb.beta=0.5.
        watch: a folder of texts: reads its new and changed files and forgets deleted ones, again
            and again until Ctrl-C, and keeps them in --save, by default a folder in $HEBBLM_CACHE,
            from which the same command continues.
        interactive: with --watch, suggest the next words after each line that you type; Tab
            completes it, and /help lists commands.
    """

    model: Path = field(metadata={"positional": True})
    files: list[Path] = field(default_factory=list, metadata={"positional": True, "nargs": "*"})
    column: str | None = None
    method: str | None = None
    plugin: list[Path] = field(default_factory=list, metadata={"nargs": "+"})
    suggest: str | None = None
    explain: str | None = None
    generate: str | None = None
    words: int = 5
    new_tokens: int = 20
    temperature: float = 0.7
    rank: Path | None = None
    ranked: Path | None = None
    prior_weight: float = 1.0
    memory: Path | None = None
    read_only: bool = False
    save: Path | None = None
    update_every: int | None = None
    k: int | None = None
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    watch: Path | None = None
    interactive: bool = False

    def __post_init__(self) -> None:
        if self.interactive and self.watch is None:
            raise UserError(
                "--interactive works only with --watch FOLDER; add --watch and the folder of your "
                "texts"
            )
        if self.watch is not None:
            check_watch(self.watch, self.save)
            if self.max_tokens is not None:
                raise UserError(
                    f"--watch {self.watch} reads whole files; leave --max-tokens {self.max_tokens} "
                    "out"
                )
        if self.ranked is not None and self.rank is None:
            raise UserError(
                f"--ranked {self.ranked} is where the lists of --rank go; name their file with "
                "--rank"
            )
        for name in ("words", "new_tokens", "max_tokens", "update_every", "k"):
            if (value := getattr(self, name)) is not None:
                whole_number(name, value)
        for name in ("save", "watch"):
            if self.read_only and (folder := getattr(self, name)) is not None:
                raise UserError(
                    f"--read-only learns nothing that --{name} {folder} could keep; leave one of "
                    "them out"
                )

    def has_work(self) -> bool:
        """Return whether there is a text to read, a question to answer, or a reader to save."""
        asked = (self.suggest, self.explain, self.generate, self.rank, self.watch, self.save)
        return bool(self.files) or any(value is not None for value in asked)


@command(PROG, ReadConfig, f'{PROG} tiny-pydoc-raw notes.txt --suggest "The function "')
@interrupted("nothing was saved")
def main(config: ReadConfig, argv: list[str]) -> None:
    """Read a text with an adapting model, and see what it expects before and after."""
    if config.watch is None:
        _main(config)
        return
    if config.save is None:
        config = replace(config, save=default_folder(config.model, config.watch))
        assert config.save is not None
    # Two readers with one folder would each lose the other's texts.
    with file_lock(config.save, "this memory", wait=False):
        _main(config)


def _main(config: ReadConfig) -> None:
    _check(config)
    lists = [] if config.rank is None else read_lists(config.rank)
    if config.ranked is not None:
        check_writable(config.ranked.absolute().parent)
    settings = parse_settings(config.set)
    files = _files(config)
    memory = _memory(config)
    if config.save is not None:
        _check_save(config.save, memory)
    model, reader = _open(config, memory, settings)
    questions = Questions(reader, config, piped=bool(lists) and config.ranked is None)
    texts = _texts(files, reader)
    if config.files:
        questions.ask("before reading")
    for file, text in texts:
        _read_and_tell(model, reader, file, text, config, settings, questions.print_line)
    questions.ask("after reading" if config.files else "now")
    if config.watch is not None and config.save is not None:
        _watch(reader, config.watch, config.save, config, questions)
        return
    if config.save is not None:
        reader.save(config.save)
        questions.print_line(
            f"what was read is in {config.save}; continue with --memory {config.save}"
        )
    elif texts and not config.read_only:
        questions.print_line("nothing is saved; add --save DIR to keep what was read")
    if lists:
        _rank(reader, lists, config)


def _check(config: ReadConfig) -> None:
    """Refuse unknown names, and a command without work."""
    for path in config.plugin:
        load_plugin(path)
    if config.method is not None:
        check_methods([unaliased(config.method)])
    check_device(config.device)
    model_folder(config.model)
    if not config.has_work():
        raise UserError(
            f"{config.model} has nothing to do; name a text to read ({PROG} {config.model} "
            "notes.txt), or ask it with --suggest, --explain, --generate or --rank"
        )


def _files(config: ReadConfig) -> Sequence[TextFile]:
    """Return the files of text, and refuse an empty one; a file of a folder may be empty."""
    if not config.files:
        return ()
    files = text_files(config.files, config.column, pipes=True)
    empty = [file for file in files if not _has_text(file)]
    for file in empty:
        if file.path in config.files or len(empty) == len(files):
            raise UserError(f"{file} is empty; put text into it")
    return files


def _memory(config: ReadConfig) -> Path | None:
    """Return the folder to go on from: with ``--watch``, that of the same command before."""
    from hebblm.reader.checkpoint import READER

    if config.memory is not None or config.watch is None or config.save is None:
        return config.memory
    if (config.save / READER).is_file():
        return config.save
    return None


def _check_save(save: Path, memory: Path | None) -> None:
    """Refuse a folder that is in use: hours of reading should not fail at their end."""
    from hebblm.reader.checkpoint import READER, check_free

    check_free(save)
    check_writable(save.absolute().parent)
    continues = memory is not None and save.resolve() == memory.resolve()
    if not continues and (save / READER).is_file():
        log(f"{save} holds another reader; it is replaced when the texts are read")


def _open(
    config: ReadConfig, memory: Path | None, settings: Mapping[str, Any]
) -> tuple[LanguageModel, Reader]:
    """Load the model, and open its reader."""
    from hebblm.api.language_model import load

    model = load(
        config.model,
        device=config.device,
        dtype=config.dtype,
        context=config.context,
        stride=config.stride,
    )
    reader = model.reader(
        config.method,
        memory=memory,
        k=config.k,
        update_every=config.update_every,
        settings=settings,
        tokenizer=config.tokenizer,
    )
    return model, reader


def _texts(files: Sequence[TextFile], reader: Reader) -> list[tuple[TextFile, Iterator[str]]]:
    """Return each file with its text in pieces; the first piece decides how texts are split, also
    those of questions before reading.
    """
    texts = [(file, text_parts(file, PART_SIZE)) for file in files]
    if texts:
        file, rest = texts[0]
        beginning = list(islice(rest, 1))
        reader.vocabulary.fit("".join(beginning), str(file))
        texts[0] = file, chain(beginning, rest)
    return texts


def _read_and_tell(
    model: LanguageModel,
    reader: Reader,
    file: TextFile,
    text: Iterator[str],
    config: ReadConfig,
    settings: Mapping[str, Any],
    print_line: Callable[[str], None],
) -> None:
    """Read a text, and print its scores and how many of its words are new.

    Raises:
        UserError: the method diverged.
    """
    from hebblm.reader.scores import Totals

    known = len(reader.vocabulary.words)
    totals = Totals(pieces=model.pieces is not None)
    _read(reader, file, text, config, totals)
    count = len(reader.vocabulary.words) - known
    new = ""
    if not totals.pieces:
        new = f"; {count:,} new word{'' if count == 1 else 's'}"
    if count:
        new += ", each charged as <unk> and spelled until it is learned"
    print_line(f"{file}: {totals}{new}")
    if totals.tokens and not math.isfinite(totals.perplexity):
        rates = METHODS[reader.method].rates(Hyperparameters().changed(settings).methods)
        raise UserError(
            f"{reader.method} diverged on {file}, and nothing is saved; lower {rates} (--set)"
        )


def _watch(
    reader: Reader, watched: Path, save: Path, config: ReadConfig, questions: Questions
) -> None:
    """Read a folder again and again, and answer the lines that are typed."""
    if save == default_folder(config.model, watched):
        questions.print_line(f"what is read is kept in {save}; --save names another folder")
    conversation: Conversation

    def answer(line: str) -> None:
        conversation.answer(line)

    watch = Watch(reader, watched, save, config.column, answer)
    conversation = Conversation(reader, questions, save, watch.forget)
    watch.run(partial(lines_of, conversation, save) if config.interactive else None)


def _read(
    reader: Reader, file: TextFile, text: Iterator[str], config: ReadConfig, totals: Totals
) -> None:
    """Read a text under a progress bar, a piece at a time, and add up its scores."""
    begun = 0

    def counted() -> Iterator[str]:
        nonlocal begun
        for piece in text:
            if not begun:
                warn_of_new(reader.vocabulary, piece, str(file))
            begun += len(piece.encode())
            yield piece

    with bar() as progress:
        task = progress.add_task(f"read {file.path.name}", total=file.size or None, unit="bytes")

        def moved(done: int, total: int) -> None:
            progress.update(task, completed=totals.bytes + (begun - totals.bytes) * done // total)

        for part in reader.read_pieces(
            counted(),
            learn=not config.read_only,
            progress=moved,
            name=str(file),
            max_tokens=config.max_tokens,
        ):
            totals.add(part)


def _rank(reader: Reader, lists: list[Line], config: ReadConfig) -> None:
    """Rank all lists, then write them, best first."""
    lines = track(
        rank_lists(reader, lists, config.prior_weight), "rank alternatives", len(lists), "lists"
    )
    data = b"".join(lines)
    if config.ranked is None:
        sys.stdout.write(data.decode())
    else:
        write_bytes(config.ranked, data)


def _has_text(file: TextFile) -> bool:
    """Read a file to its end and return whether it has text; one that can be read only once counts
    as text.
    """
    return not file.path.is_file() or sum(len(part) for part in text_parts(file, PART_SIZE)) > 0


if __name__ == "__main__":
    sys.exit(main())
