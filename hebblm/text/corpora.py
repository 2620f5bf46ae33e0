"""Corpora by name: ``ptb``, ``wt2``, ``pydoc``, ``numpy``, ``text:PATH``, ``hf:ID[:CONFIG]``, a
folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from hebblm.errors import UserError
from hebblm.io import download
from hebblm.io.files import Count, read_json
from hebblm.io.installation import manifest_path
from hebblm.runtime.spelling import unknown
from hebblm.text.documentation import documentation_sources
from hebblm.text.formats import STANDARD_INPUT, shown
from hebblm.text.hub import hub_sources
from hebblm.text.records import CHOOSE
from hebblm.text.sources import SPLITS, FileLines, LineSource, TextFile, contiguous, plain_sources
from hebblm.text.tokenizers import Tokenizer, WhitespaceTokenizer

SCHEMA = "hebblm-corpora/1"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """File of a corpus."""

    path: str  # below a data folder, such as ``ptb/train.txt``
    urls: tuple[str, ...]  # public addresses of these very bytes
    sha256: str
    tokens: Count  # its words with one ``<eos>`` a line


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """Named corpus."""

    name: str  # as on the command line
    title: str
    # ``files`` with known bytes, or ``documentation`` extracted from an installation
    kind: Literal["files", "documentation"]
    licence: str
    citation: str  # whom to name
    files: Mapping[str, FileEntry]  # by split, empty for documentation
    types: int | None  # distinct words of the training split with ``<eos>``, None for documentation


def load_manifest() -> dict[str, CorpusEntry]:
    path = manifest_path()
    document = read_json(path)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UserError(f"{path} is not a list of corpora of schema {SCHEMA}; restore it")
    without: dict[str, object] = {"files": {}, "types": None}
    try:
        listed = {
            name: {**without, **fields, "name": name}
            for name, fields in document["corpora"].items()
        }
        return msgspec.convert(listed, dict[str, CorpusEntry])
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is incomplete ({error}); restore it") from error


def file_corpora() -> list[str]:
    """Names of the corpora whose bytes are known, the same on every machine."""
    return [name for name, entry in load_manifest().items() if entry.kind == "files"]


CORPUS_FILE = "corpus.json"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Text in three splits, and its tokeniser."""

    name: str  # as given
    sources: Mapping[str, LineSource] = field(repr=False)  # the lines of each split
    tokenizer: Tokenizer  # lines to tokens
    # JSON of where the text came from: kind, licence, ``sha256`` by split
    provenance: Mapping[str, Any]
    # tokens of each split with one ``<eos>`` a line, where they are known
    expected_tokens: Mapping[str, int] = field(default_factory=dict)
    # types of the training split with ``<eos>``, where they are known
    expected_types: int | None = None
    min_count: int = 1  # training count below which a word should become ``<unk>``
    # the folder that ``hebblm-preprocess`` wrote, for which there are no lines
    prepared: Path | None = None

    @property
    def tokenised(self) -> bool:
        """Whether its lines are tokens already: each begins and ends with a space that no model
        sees.
        """
        return self.provenance.get("kind") == "files"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.sources) if self.prepared is None else SPLITS

    def lines(self, split: str) -> Iterator[str]:
        """Lines of a split, blank ones too, without their ends."""
        if split not in self.sources:
            have = ", ".join(self.sources) or "no lines, only binarised ids"
            raise UserError(f"corpus {self.name} has no split {split!r}; it has {have}")
        return self.sources[split].lines()


def resolve(name: str, column: str | None = None, *, remedy: str | None = None) -> Corpus:
    """Find a corpus by name: ``ptb``, ``wt2``, ``pydoc``, ``numpy``, ``text:PATH``,
    ``hf:ID[:CONFIG]``, or a folder.

    The folder is one that ``hebblm-preprocess`` wrote. ``column`` names the column of records that
    holds the text, see :func:`hebblm.text.records.text_column`; ``remedy`` ends the error if
    several columns hold text, by default to preprocess the text.
    """
    check_name(name)
    manifest = load_manifest()
    remedy = (
        remedy or f"hebblm-preprocess --text {name} --column NAME makes a corpus of one of them"
    )
    if column is not None and not name.startswith(("text:", "hf:")):
        raise UserError(f"{name} has no columns; leave column={column} out")
    if name in manifest and manifest[name].kind == "files":
        return _from_manifest(manifest[name], download.data_dirs())
    if name in manifest:
        entry = manifest[name]
        sources, origin = documentation_sources(name)
        return _corpus(
            name,
            sources,
            {"kind": "documentation", "licence": entry.licence, **origin},
            min_count=2,
        )
    if name.startswith("text:"):
        return text_corpus(Path(name.removeprefix("text:")), column=column, remedy=remedy)
    if name.startswith("hf:"):
        sources, origin = hub_sources(name.removeprefix("hf:"), column, remedy)
        return _corpus(name, sources, origin)
    return Corpus(name, {}, WhitespaceTokenizer(), {"kind": "prepared"}, prepared=Path(name))


def check_name(name: str) -> None:
    """Refuse the name of an unknown corpus, before anything is loaded or fetched."""
    manifest = load_manifest()
    kind, _, path = name.partition(":")
    if name in manifest or kind == "hf" or (Path(name) / CORPUS_FILE).is_file():
        return
    if kind == "text":
        if Path(path) != STANDARD_INPUT and not Path(path).exists():
            raise UserError(f"{path} does not exist; name a UTF-8 text file or a folder of them")
        if Path(path).is_file() and not Path(path).stat().st_size:
            raise UserError(f"{path} is empty; put text into it")
        return
    if Path(name).exists():
        raise UserError(
            f"{name} is not a folder that hebblm-preprocess wrote; for plain text say text:{name}"
        )
    remedy = f"choose {', '.join(manifest)}, text:PATH, hf:ID[:CONFIG], or a preprocessed folder"
    raise unknown("corpus", name, manifest, remedy)


def text_corpus(
    # a file or ``-`` for standard input, which is split 80/10/10 by lines; or a folder with
    # ``train``, ``valid`` and ``test`` files of text; or any other folder, whose files of text are
    # read in order and split likewise
    path: Path,
    names: Mapping[str, str] | None = None,  # by split, other file names within the folder
    tokenizer: Tokenizer | None = None,  # how to tokenise, at white space unless said
    *,
    column: str | None = None,  # of records that holds the text
    remedy: str = CHOOSE,  # what to do where several columns could be meant
) -> Corpus:
    """Return the corpus of a user's own UTF-8 text.

    A file, or ``-`` for standard input, is split 80/10/10 by lines; so are the files of a folder,
    read in order, unless it has ``train``, ``valid`` and ``test`` files.
    """
    sources, files = plain_sources(path, names or {}, column, remedy)
    origin = {"kind": "text", "files": files, **_column(*sources.values())}
    return _corpus(f"text:{path}", sources, origin, tokenizer=tokenizer)


def foreign_text(name: str, source: FileLines, tokenizer: Tokenizer, *, whole: bool) -> Corpus:
    """Return a text as a corpus that is only read: all of its words are in the dictionary.

    With ``whole``, every split is all of it; without, ``valid`` and ``test`` are its last two
    tenths.
    """
    path = Path(name.removeprefix("text:"))
    if next(source.lines(), None) is None:
        raise UserError(f"{shown(path)} is empty; put text into it")
    if whole:
        splits = dict.fromkeys(SPLITS, source)
    else:
        splits = {**contiguous(source, path), "train": source}
    return _corpus(name, splits, {"kind": "text", **_column(source)}, tokenizer=tokenizer)


def _column(*sources: FileLines) -> dict[str, str]:
    """Return provenance's record of the column; empty for plain text."""
    files: tuple[TextFile, ...] = ()
    for source in sources:
        files += source.files
    column = FileLines(files).column
    if column is None:
        return {}
    return {"column": column}


def _corpus(
    name: str,
    sources: Mapping[str, LineSource],
    origin: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    min_count: int = 1,
) -> Corpus:
    """Return a corpus with the hashes of the text found, not those expected."""
    hashes = {split: source.sha256() for split, source in sources.items()}
    provenance = {**origin, "sha256": hashes}
    return Corpus(
        name, sources, tokenizer or WhitespaceTokenizer(), provenance, min_count=min_count
    )


def locate(entry: CorpusEntry, split: str, folders: Sequence[Path]) -> Path:
    """Return the verified path of one split in the first folder that has it; download it if no
    folder has it.
    """
    file = entry.files[split]
    path = download.find(
        folders,
        (file.path,),
        download.cache_dir() / "data",
        name=f"the {split} split of {entry.name}",
        urls=file.urls,
        known=file.sha256,
        mirrored=f"{entry.name}/{split}.txt",
    )
    download.checked(path, file.sha256, required=True)
    return path


def _from_manifest(entry: CorpusEntry, folders: Sequence[Path]) -> Corpus:
    sources = {split: FileLines.of(locate(entry, split, folders)) for split in entry.files}
    provenance = {
        "kind": "files",
        "title": entry.title,
        "licence": entry.licence,
        "citation": entry.citation,
        "urls": {split: list(file.urls) for split, file in entry.files.items()},
        "sha256": {split: file.sha256 for split, file in entry.files.items()},
    }
    return Corpus(
        entry.name,
        sources,
        WhitespaceTokenizer(),
        provenance,
        expected_tokens={split: file.tokens for split, file in entry.files.items()},
        expected_types=entry.types,
    )
