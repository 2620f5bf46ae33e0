"""Frame of the commands: frozen dataclasses as command lines, and one line instead of a
traceback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import re
import sys
import textwrap
import time
from argparse import Action, ArgumentError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping
from io import TextIOWrapper
from itertools import pairwise, zip_longest
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TextIO, TypeVar, Union, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser, DefaultHelpFormatter
from rich.console import Console

from awd_lstm.document import CheckpointError
from hebblm.cli.plain import ConfigFile, check_values
from hebblm.errors import UserError, reason
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.runtime.progress import write
from hebblm.runtime.ranks import LostRankError, end_rank, leads, size
from hebblm.runtime.spelling import unknown
from hebblm.runtime.wording import with_options, worded, wording

C = TypeVar("C")
FORMER = {"--destdir": "--output-path"}  # options of an earlier release, and their present names
GONE = {  # options of the last release that no command has now, and what to do instead
    "--readings": "a checkout of hebblm compares them: python -m recipes.study readings",
    "--processes": "start P of them by torchrun --nproc-per-node P -m {module} ...",
}
# Seconds that a rank waits before it prints an error that another rank may have printed, or surely
# has: in that time the launcher of the ranks ends this one.
GRACE, LOST = 5.0, 30.0
# A command takes its arguments as a list, or those of the process, and returns the exit status.
Main = Callable[..., int]
# Its body takes its options and the words that it was given, and returns the exit status, None for
# 0.
Body = Callable[[C, list[str]], int | None]


class _Formatter(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Help formatter that shows defaults, keeps the line breaks of the example, and wraps all other
    lines.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        fill = functools.partial(
            textwrap.fill, width=width, initial_indent=indent, subsequent_indent=indent
        )
        return "\n".join(line if line.startswith(" ") else fill(line) for line in lines)

    def _expand_help(self, action: Action) -> str:
        """Return the help of an option, with the plain name of its type."""
        return re.sub(r"<class '([\w.]+)'>", r"\1", super()._expand_help(action))


class _Parser(ArgumentParser):
    """A parser that reports if its help cannot be written."""

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)


def parse(
    config: type[C], argv: list[str] | None, *, prog: str, description: str, example: str
) -> C:
    """Turn a command line, and the file named by ``--config``, into an instance of a frozen
    dataclass.

    Every field becomes an option with the field's type and default; its help is the field's line
    under ``Args`` in the class's docstring, or ``help`` of its metadata. A field whose metadata
    says ``positional`` is an argument. ``GROUPS`` of the class are headings of the help, each with
    a title, a text below it, and its fields. Keys that the dataclass does not have are refused, on
    the command line and in the file.
    """
    epilog, hints = f"example:\n  {example}\n", get_type_hints(config)
    parser = _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=_Formatter,
        exit_on_error=False,
    )
    _add_options(parser, config, hints)
    arguments = sys.argv[1:] if argv is None else argv
    # from a shell variable that is not set; an empty path is "."
    for option, word in pairwise(["", *arguments]):
        name, given, value = word.partition("=")
        name, value = (name, value) if given else (option, word)
        if (
            not value
            and name.startswith("--")
            and Path in _kinds(hints.get(name[2:].replace("-", "_")))
        ):
            raise UserError(f"{name} is empty; name a path")
    try:
        namespace = parser.instantiate(parser.parse_args(_arguments_last(parser, arguments)))
        values = {field.name: namespace[field.name] for field in dataclasses.fields(config)}  # type: ignore[arg-type]
        for name, value in values.items():
            check_values(f"--{name.replace('_', '-')}", value)
        return config(**values)
    except (ArgumentError, TypeError, ValueError, OSError, RecursionError) as error:
        raise _explained(error, parser, arguments, hints) from error


def _add_options(parser: ArgumentParser, config: type, hints: Mapping[str, Any]) -> None:
    """Add an option, or an argument, to a parser for each field of a dataclass."""
    parser.add_argument(
        "--config", action=ConfigFile, help="file with any of the options below (YAML or JSON)"
    )
    docs = _field_docs(config)
    translate = with_options(option_names(config))
    headed: dict[str, Any] = {}
    for title, said, names in getattr(config, "GROUPS", ()):
        about = None if said is None else translate(said)
        headed |= dict.fromkeys(names.split(), parser.add_argument_group(title, about))
    # shared options come last
    for field in sorted(dataclasses.fields(config), key=attrgetter("kw_only")):
        positional = bool(field.metadata.get("positional"))
        name = field.name if positional else f"--{field.name.replace('_', '-')}"
        words = translate(field.metadata.get("help", docs.get(field.name, "")))
        options: dict[str, Any] = {"type": hints[field.name], "help": words}
        if positional:
            options["metavar"] = field.name  # the help lists its choices, if it has some
        if "nargs" in field.metadata:
            options |= {"nargs": field.metadata["nargs"], "type": get_args(hints[field.name])[0]}
        if hints[field.name] is bool and field.default is False:
            options = {"action": "store_true", "help": options["help"]}
        elif field.default is not dataclasses.MISSING:
            options["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            options["default"] = field.default_factory()
        elif not positional:
            options["required"] = True
        headed.get(field.name, parser).add_argument(name, **options)


def _explained(
    error: Exception, parser: ArgumentParser, arguments: list[str], hints: Mapping[str, Any]
) -> UserError:
    """Return a parser's error as one line: a value's own check, an unknown option, or a bad
    value.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__cause__ or cause.__context__
    known, remedy = parser._option_string_actions, f"see {parser.prog} --help"
    for option in (item.partition("=")[0] for item in arguments if item.startswith("--")):
        if option.partition(".")[0] in known:
            continue
        if FORMER.get(option) in known:
            return UserError(f"unknown option {option!r}; did you mean {FORMER[option]}? {remedy}")
        if option in GONE:
            module = f"hebblm.cli.{parser.prog.removeprefix('hebblm-')}"
            return UserError(f"unknown option {option!r}; {GONE[option].format(module=module)}")
        return unknown("option", option, known, remedy)
    return _misfit(str(error), hints) or UserError(f"{_innermost(error)} ({remedy})")


def _arguments_last(parser: ArgumentParser, words: list[str]) -> list[str]:
    """Return a command line with its arguments after its options, where the parser finds all of
    several.
    """
    if not any(
        action.nargs in ("*", "+") and not action.option_strings for action in parser._actions
    ):
        return words
    options: list[str] = []
    arguments: list[str] = []
    open_to = 0.0  # number of further words that belong to the option
    for at, word in enumerate(words):
        if word == "--":
            arguments += words[at + 1 :]
            break
        # a negative number is a value
        if word.startswith("-") and not re.fullmatch(r"-(\d+|\d*\.\d+)?", word):
            nargs = getattr(parser._option_string_actions.get(word), "nargs", None)
            open_to = 0 if "=" in word or nargs == 0 else 1 if nargs is None else math.inf
            options.append(word)
        elif open_to:
            options.append(word)
            open_to -= 1
        else:
            arguments.append(word)
    return [*options, "--", *arguments] if arguments else options


def options(prog: str, config: type[C], example: str) -> Callable[[Body[C]], Main]:
    """Give a command its options, see :func:`parse`; its docstring is its description in the
    help.
    """

    def decorate(run: Body[C]) -> Main:
        description = " ".join((run.__doc__ or "").split())

        def main(argv: list[str] | None = None) -> int:
            words = sys.argv[1:] if argv is None else argv
            with wording(with_options(option_names(config))):
                try:
                    parsed = parse(
                        config, words, prog=prog, description=description, example=example
                    )
                    return run(parsed, words) or 0
                except (UserError, CheckpointError) as error:
                    error.args = (worded(str(error)),)
                    raise

        main.__doc__ = description
        return main

    return decorate


def option_names(config: type) -> set[str]:
    """Return the arguments that messages of a command may name: its own, and those of an
    evaluation, which reports ask for.
    """
    names = {
        field.name
        for options in (config, EvalOptions, ScenarioConfig)
        for field in dataclasses.fields(options)
        if not field.metadata.get("positional")
    }
    return {*names, "output_path", "by_document", "methods"}


def command(prog: str, config: type[C], example: str) -> Callable[[Body[C]], Main]:
    """Make a command of a function: with options, and guarded."""
    return lambda run: guarded(prog)(options(prog, config, example)(run))


def choosing(prog: str, subcommands: Mapping[str, Main]) -> Main:
    """Make a command whose first argument names one of its subcommands."""

    def main(argv: list[str] | None = None) -> int:
        name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
        if name in ("-h", "--help"):
            print(f"usage: {prog} SUBCOMMAND [options]\n\neach has its own --help:")
            for known, command in subcommands.items():
                about = textwrap.wrap(command.__doc__ or "", 66)
                print(
                    "\n".join(
                        f"  {start:12}{line}"
                        for start, line in zip_longest([known], about, fillvalue="")
                    )
                )
            return 0
        if name not in subcommands:
            raise unknown("subcommand", name, subcommands, f"choose {', '.join(subcommands)}")
        return subcommands[name](rest)

    return guarded(prog)(main)


def print_line(line: str) -> None:
    """Print a line; see :func:`hebblm.runtime.progress.write`."""
    write(line, Console())


def guarded(prog: str) -> Callable[[Main], Main]:
    """Make a command end with status 2 and one line on a user's mistake, and with 130 on Ctrl-C.

    Only the first of several processes prints. Another one prints only errors that it alone finds.
    """

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def wrapped(argv: list[str] | None = None) -> int:
            _prepare_streams()
            try:
                status = _run(main, argv)
            except (Exception, KeyboardInterrupt) as error:
                status = _status_of(prog, error)
            if argv is None and size() > 1:
                end_rank(status)
            return status

        return wrapped

    return decorate


def _prepare_streams() -> None:
    """Open closed outputs, and let a terminal print texts with characters that it does not have."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a new file with its number would get the output
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - lives as long as the process
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run(main: Main, argv: list[str] | None) -> int:
    """Run a command and write its output out, also that of ``--help``, which exits."""
    with _once():
        try:
            status = main(argv)
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    return status


def _status_of(prog: str, error: BaseException) -> int:
    """Print one line for an error that a user can mend, and return the exit status.

    Raises:
        BaseException: the error itself if it is a defect of the program.
    """
    if isinstance(error, UserError | CheckpointError):
        return _print_error(prog, error)
    if isinstance(error, OSError):
        _close_if_unwritable(sys.stdout)
        place = f"cannot use {error.filename}: " if error.filename else ""
        remedy = "choose a place with space and permission"
        return _print_error(prog, UserError(f"{place}{reason(error)}; {remedy}"))
    if isinstance(error, LostRankError):
        _print_error(prog, error)
        return 1
    if isinstance(error, KeyboardInterrupt):
        if leads():
            kept = str(error) or "what was finished is kept"
            print(f"{prog}: interrupted; {kept}", file=sys.stderr)
        return 130
    raise error


def _print_error(prog: str, error: Exception) -> int:
    """Print an error and return the command's exit status."""
    if isinstance(error, LostRankError):
        time.sleep(LOST)
    elif not leads():
        time.sleep(GRACE)
    with contextlib.suppress(OSError):  # if nothing can be written, the exit status is enough
        print(f"{prog}: error: {error}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def _once() -> Iterator[None]:
    """Discard the output of all processes except the first."""
    if leads():
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _close_if_unwritable(stream: TextIO) -> None:
    """Discard a stream's output if it cannot be written, or the interpreter would try again at its
    end.
    """
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _field_docs(config: type) -> dict[str, str]:
    """Return the text of each field under ``Args:`` in the docstrings of a class and its bases."""
    texts = (
        inspect.cleandoc(owner.__doc__ or "").partition("\nArgs:\n")[2]
        for owner in reversed(config.__mro__)
    )
    fields = (
        field
        for text in texts
        for field in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", text, re.MULTILINE)
    )
    return {name: " ".join(words.split()).replace("``", "") for name, words in fields}


def _misfit(message: str, hints: Mapping[str, Any]) -> UserError | None:
    """Return the error for a value outside an option's choices; None for another mistake."""
    match = re.search(r'Parser key "(\w+)".*(?:Given|Got) value: (.*)', message, re.DOTALL)
    if match is None or match[1] not in hints:
        return None
    kinds = _kinds(hints[match[1]])
    choices = [
        str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)
    ]
    return (
        unknown(match[1].replace("_", " "), match[2], choices, f"choose {', '.join(choices)}")
        if choices
        else None
    )


def _kinds(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, UnionType, list):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    return [hint]


# Words for the value of an option, by the name of its type.
KINDS = {"int": "a whole number", "float": "a number", "str": "text", "dict": "names with values"}


def _innermost(error: BaseException) -> str:
    """Return the most helpful line of a parser's nested message, as a sentence if it names the
    option's type.
    """
    key = re.search(r'Parser key "([^"]+)"', str(error))
    kind = re.search(rf"Expected a <class '({'|'.join(KINDS)})'>", str(error))
    given = re.search(r"(?:Given|Got) value: (.*)\Z", str(error))
    if key and kind and given:
        return f"{key[1]} = {given[1]} must be {KINDS[kind[1]]}"
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip(" -")]
    return "; ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else type(error).__name__
