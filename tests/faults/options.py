"""Random command lines and files of options: status 0 or 2, no traceback, no library's warning,
nothing run.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hebblm.adapt.methods import METHODS
from hebblm.cli import common, memory, preprocess, read, report, train, tune, vision
from hebblm.cli import eval as evaluation
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import defaults

from .sandbox import FOREVER, Case, Clock, Group, Writer, make_world, run

LINES, FILES = 2_000, 5_000
PATIENCE = 5  # seconds; a line that is still at work then was understood
MEMORY = 6 << 30  # bytes that a command may have
OFFLINE: dict[str, str | None] = {
    "HEBBLM_MIRROR": "http://127.0.0.1:9",
    "HF_HUB_OFFLINE": "1",
    "HEBBLM_DATA": None,
}


@dataclass(frozen=True)
class Known:
    """A command."""

    module: str  # of hebblm.cli
    prefix: tuple[str, ...]  # its subcommand, if it has any
    config: Any  # the dataclass that defines its options
    # options without which little would be tried but that they are missing; small, so that all ends
    # soon
    usual: str


SCENARIO = "--checkpoint {root}/model --text {root}/short.txt --device cpu --max-tokens 20"
COMMANDS = (
    Known("preprocess", (), preprocess.PreprocessConfig, "--text {root}/text.txt --output-path "
        "{out}"),
    Known("train", (), train.TrainConfig, "--corpus text:{root}/text.txt --preset tiny --epochs 1 "
        "--output-path {out}"),
    Known("eval", (), evaluation.EvalConfig, f"{SCENARIO} --methods lstm,mixture"),
    Known("tune", (), tune.TuneConfig, f"{SCENARIO} --methods knn --skip-dynamic --output-path "
        f"{{out}}"),
    Known("read", (), read.ReadConfig, "{root}/model {root}/short.txt --device cpu"),
    Known("report", (), report.ReportConfig, "{root}/result --output-path {out} --format md"),
    Known("report", ("inspect",), report.InspectConfig, "{root}/result --output-path "
        "{out}/page.html"),
    Known("memory", ("build",), memory.BuildConfig, "--model {root}/model --text {root}/short.txt "
        "--output-path {out}"),
    Known("memory", ("info",), memory.InfoConfig, "{root}/memory"),
    Known("memory", ("merge",), memory.MergeConfig, "{root}/memory {root}/memory --output-path "
        "{out}"),
    Known("vision", (), vision.VisionConfig, "online --scale smoke --seeds 1 --output-path {out}"),
)  # fmt: skip

NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "7",
    "20",
    "-1",
    "9007199254740993",
    "18446744073709551616",
    "1e3",
    "x",
    "",
    "1.5",
)
FLOATS = ("0", "0.5", "1", "-0.5", "2", "1e-30", "1e30", "nan", "inf", "-inf", "1e999", "x", "")
WORDS = (
    "raw", "lower", "auto", "cpu", "cuda", "tiny", "small", "test", "valid", "union", "open",
    "ptb", "wt2", "pydoc",
    "text:{root}/short.txt", "hf:none/none", "{root}/model", "tiny-pydoc-raw", "ptb-to-wt2",
    "a-to-b", "lstm,knn",
    "all",
    "lstm", "mixture+hebb", "tuned", "paper", "md,tex",
    "png", "last", "ffn-input", "fast", "exact", "1,2,3", "float16",
    "", "-", "--", "=", "☃", "\u202e", "a" * 5_000,
    "../..", "{}", "[1]", "null", "!!python/name:os.system", "%s%n", "{{7*7}}",
)  # fmt: skip
PATHS = (
    "{root}/model", "{root}/text.txt", "{root}/short.txt", "{root}/result",
    "{root}/result/result.json",
    "{root}/memory",
    "{out}", "{out}/deeper", "/nonexistent/x", "/proc/self/mem", "/dev/null", "", ".", "{root}",
    "a" * 300, "x\ny",
)  # fmt: skip


def line(seed: int) -> tuple[Known, tuple[str, ...]]:
    """Return the command of a seed, and its arguments with ``{root}`` and ``{out}`` in them."""
    draw = random.Random(f"options {seed}")
    known = draw.choice(COMMANDS)
    arguments = list(known.prefix) if draw.random() < 0.97 else []
    arguments += known.usual.split() if draw.random() < 0.9 else []
    hints = get_type_hints(known.config)
    fields = dataclasses.fields(known.config)
    for field in draw.sample(fields, min(len(fields), draw.choice((0, 1, 1, 2, 2, 3, 5)))):
        words = values(draw, field.name, hints[field.name], many="nargs" in field.metadata)
        option = [] if field.metadata.get("positional") else [f"--{field.name.replace('_', '-')}"]
        if hints[field.name] is bool:
            words = [] if draw.random() < 0.9 else words
        if option and words and draw.random() < 0.3:
            arguments.append(f"{option[0]}={words[0]}")
        else:
            arguments += option + words
    if draw.random() < 0.1:
        arguments.insert(
            draw.randint(0, len(arguments)),
            draw.choice(("-h", "--help", "--nonsense", "--", "-", "x", "--config")),
        )
    if draw.random() < 0.05 and arguments:
        del arguments[draw.randrange(len(arguments))]
    return known, tuple(arguments)


def values(draw: random.Random, name: str, hint: Any, *, many: bool) -> list[str]:
    """Return words for an option of a type, most of them such as it takes."""
    if name == "set":
        return [_setting(draw) for _ in range(draw.randint(1, 3))]
    if name == "methods":
        return [",".join(draw.choices(list(METHODS), k=draw.randint(1, 3)))]
    pool = _pool(draw, hint)
    return draw.choices(pool, k=draw.randint(0, 3) if many else 1)


def _setting(draw: random.Random) -> str:
    """Return a change of a hyper-parameter."""
    name, value = draw.choice(list(defaults().items()))
    pool = (*FLOATS, *NUMBERS) if isinstance(value, (int, float)) else (*WORDS[:30], *FLOATS)
    return draw.choice(
        (f"{name}={draw.choice(pool)}", f"{name}={value}", name, f"{name}x=1", "epochs=1")
    )


def _pool(draw: random.Random, hint: Any) -> tuple[str, ...]:
    """Return words that may be of a type."""
    if draw.random() < 0.1:
        return WORDS
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is Literal:
        return tuple(map(str, kinds))
    literals = [
        str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)
    ]
    if literals:
        return tuple(literals)
    for kind, pool in ((int, NUMBERS), (float, FLOATS), (Path, PATHS)):
        if kind in kinds:
            return pool
    return WORDS


def lines(scratch: Path, count: int, clock: Clock = FOREVER) -> Case:
    """Try so many command lines."""
    root, case, still, fine = scratch / "world", Case(), 0, 0
    make_world(root)
    for seed in range(count):
        if clock.over():
            break
        known, arguments = line(seed)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            out = Path(folder) / "out"
            filled = tuple(
                word.replace("{root}", str(root)).replace("{out}", str(out)) for word in arguments
            )
            plain = tuple(word.replace("{", "{{").replace("}", "}}") for word in filled)
            environment = {**OFFLINE, "HEBBLM_CACHE": f"{folder}/cache"}
            where: Callable[[], None] = lambda folder=folder: _enter(folder)  # noqa: E731
            ended = run(
                Writer(known.module, known.module, plain), root, out, environment, where, PATIENCE
            )
        if ended.status == -signal.SIGKILL:
            still += 1
            case.count()
            continue
        fine += ended.status == 0
        wrong = ended.defect()
        if not wrong and any(
            re.search(r"\bWarning\b|warnings\.warn", told) for told in ended.lines
        ):
            wrong = f"warning: {next(told for told in ended.lines if 'arn' in told)}"
        told = " ".join(arguments)
        case.count(f"seed {seed}, {known.module} {told:.300}: {wrong}" if wrong else "")
    refused = case.survived - fine - still
    case.note = (
        f"{fine:,} with status 0, {refused:,} refused in one line, {still:,} stopped at work"
    )
    return case


def parsed(scratch: Path, count: int) -> Case:
    """Let the parsers alone take so many command lines."""
    case, refused = Case(), 0
    for seed in range(count):
        known, arguments = line(seed)
        rest = [
            word.replace("{root}", str(scratch)).replace("{out}", f"{scratch}/out")
            for word in arguments
        ]
        told, wrong = io.StringIO(), ""
        with (
            warnings.catch_warnings(record=True) as warned,
            redirect_stdout(told),
            redirect_stderr(told),
        ):
            try:
                common.parse(
                    known.config,
                    rest[len(known.prefix) :],
                    prog=known.module,
                    description="d",
                    example="e",
                )
            except UserError as error:
                refused += 1
                wrong = "several lines" if "\n" in str(error) else ""
            except SystemExit as error:
                wrong = f"status {error.code}" if error.code else ""
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
        if warned:
            wrong = f"warning: {warned[0].message}"
        case.count(
            f"seed {seed}, {known.module} {' '.join(arguments):.300}: {wrong}" if wrong else ""
        )
    case.note = f"{refused:,} refused in one line"
    return case


def _enter(folder: str) -> None:
    """Stand in a folder, and bound what a command may ask for."""
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


WITNESS = "hebblm_witness_of_import"
HOSTILE: tuple[Any, ...] = (
    {"class_path": WITNESS, "init_args": {}},
    {"class_path": f"{WITNESS}.Thing"},
    {"class_path": "os.system", "init_args": {"command": "touch witness"}},
    {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "witness"]}},
    f"{WITNESS}.Thing",
    "os.system",
    [{"class_path": WITNESS}],
    {"dict_kwargs": {"x": 1}, "class_path": WITNESS},
    {"__path__": "/etc/passwd"},
    {"_target_": WITNESS},
)
TAGGED = (
    f"!!python/module:{WITNESS}", "!!python/object/apply:os.system ['touch witness']",
    f"!!python/name:{WITNESS}.x",
    "!!python/object/new:os.system [touch witness]", "!include /etc/passwd", "!ENV ${HOME}",
    "${oc.env:HOME}",
    f"!!python/object:{WITNESS}.Thing {{}}", "&a [*a]", "!!binary aGVsbG8=", "!!set {a, b}",
    "!!timestamp 2001-01-01",
    "0x" + "f" * 400, "1" * 5_000, "!!float 1e999", ".nan", "{{ 7 * 7 }}", "<<: {k: 1}",
    "- - - - - -",
)  # fmt: skip
WATCHED = (
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "pickle.find_class",
)


def document(seed: int) -> tuple[Known, str]:
    """Return a command, and a file of options that tries to have something imported or run."""
    draw = random.Random(f"yaml {seed}")
    known = draw.choice(COMMANDS)
    names = [field.name for field in dataclasses.fields(known.config)] + [
        "config",
        "nonsense",
        "class_path",
    ]
    lines = []
    for name in draw.sample(names, min(len(names), draw.randint(1, 3))):
        hostile = draw.choice(TAGGED) if draw.random() < 0.5 else json.dumps(draw.choice(HOSTILE))
        lines.append(f"{draw.choice((name, name, name + '.x', '? ' + name))}: {hostile}")
    text = "\n".join(lines) + "\n"
    if draw.random() < 0.2:
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice("\x00\t:{}[]&*!|>'\"%@`\u2028") + text[at:]
    return known, text


class Watch:
    """Counts what the interpreter is asked to do while a file of options is read."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.watching = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and (
            event in WATCHED or (event == "import" and str(arguments[0]).startswith(WITNESS))
        ):
            self.seen.append(f"{event} {arguments!r:.80}")


def files(scratch: Path, count: int) -> Case:
    """Try so many files of options; none may have anything imported or run, or end in a
    traceback.
    """
    (scratch / f"{WITNESS}.py").write_text("class Thing: pass\nx = 1\n")
    sys.path.insert(0, str(scratch))
    case, refused, watch = Case(), 0, Watch()
    place = scratch / "options.yaml"
    try:
        for seed in range(-20, count):  # the first ones import what reading options takes
            known, text = document(seed)
            place.write_text(text, encoding="utf-8")
            wrong = ""
            watch.seen, watch.watching = [], seed >= 0
            try:
                common.parse(
                    known.config, ["--config", str(place)], prog="p", description="d", example="e"
                )
            except UserError as error:
                refused += seed >= 0
                wrong = "" if "\n" not in str(error) else f"several lines: {error}"
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            watch.watching = False
            if WITNESS in sys.modules or (scratch / "witness").exists() or Path("witness").exists():
                wrong = "imported or ran what the file named"
            if watch.seen:
                wrong = f"asked for {watch.seen[0]}"
            if seed >= 0:
                case.count(f"seed {seed}: {wrong}: {text!r:.200}" if wrong else "")
    finally:
        sys.path.remove(str(scratch))
    case.note = f"{refused:,} refused in one line; nothing imported or run"
    return case


def cases(scratch: Path, clock: Clock) -> Iterator[tuple[str, Case]]:
    """Try command lines and files."""
    yield "files of options that name code", files(scratch, FILES)
    yield "random command lines, parsed", parsed(scratch, LINES)
    yield "random command lines, carried out", lines(scratch, LINES, clock)


GROUP = Group(
    "Options",
    cases,
    (
        "a file of options that names `config` or a class ended in a traceback",
        "so did an empty path, which means the folder one stands in",
    ),
)
