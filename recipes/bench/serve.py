"""What the server costs: the time until it answers, suggestions while letters are typed, and
completions, in turn with the server of llama.cpp on the same weights.

Wall time is what a client waits; processor time of the server hardly depends on what else the
machine does. Timings of completions are processor time on a CPU, and wall time on a GPU.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.models.catalog import GGUF
from hebblm.models.pretrained import PRETRAINED
from recipes.bench.configs import ServeBenchConfig
from recipes.bench.machine import use_threads
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.servers import RunningServer, running
from recipes.bench.timing import Timing

SERVED = "served"  # name of the model for clients
STEP = 37  # words between the beginnings of two prompts, so that none begins as another does
PROMPT = 80  # words of a prompt


class Completions:
    """A turn: one completion of another prompt each time.

    Args:
        server: that is asked.
        words: of the text that prompts are taken from.
        config: how long a completion is.
        rounds: on which device.
        more: fields of each request.
    """

    def __init__(
        self,
        server: RunningServer,
        words: list[str],
        config: ServeBenchConfig,
        rounds: Rounds,
        more: dict[str, Any],
    ) -> None:
        self._server, self._words, self._start = server, words, 0
        self._asked = {"model": SERVED, "max_tokens": config.tokens, "temperature": 0, **more}
        self._on_gpu = rounds.device.type == "cuda"
        self.wall: list[float] = []  # seconds that passed

    def __call__(self) -> tuple[float, int]:
        prompt = " ".join(self._words[self._start : self._start + PROMPT])
        self._start = (self._start + STEP) % max(1, len(self._words) - PROMPT)
        answer = self._server.ask("/v1/completions", {**self._asked, "prompt": prompt})
        self.wall.append(answer.seconds)
        seconds = answer.seconds if self._on_gpu else answer.processor
        return seconds, max(1, answer.body["usage"]["completion_tokens"])


def cases(config: ServeBenchConfig, rounds: Rounds) -> list[Case]:
    """Return a case a model."""
    return [partial(_model, config, name, rounds) for name in config.models]


def _model(config: ServeBenchConfig, name: str, rounds: Rounds) -> Row:
    """Measure a server of one model, and that of llama.cpp where its file has that form."""
    threads = use_threads(config.threads)
    words = config.typed.read_text(encoding="utf-8").split()
    with ExitStack() as stack:
        ours = stack.enter_context(running(_command(name, rounds), threads))
        values = {"ready s": ours.ready_seconds, "ready processor s": ours.ready_processor}
        learned = ours.ask("/v1/documents", {"text": config.text.read_text(encoding="utf-8")})
        values["learned s"] = learned.seconds
        letters, spent = _suggestions(config, ours, words)
        values |= _percentiles("suggest", letters[1:]) | _percentiles("processor", spent[1:])
        values["first letter s"] = letters[0]
        completions = {
            "best": Completions(ours, words, config, rounds, {"adapted": True}),
            "base": Completions(ours, words, config, rounds, {"adapted": False}),
        }
        file = _gguf(name)
        if file is not None and config.llama_python is not None:
            command = _llama_command(config.llama_python, file, threads)
            theirs = stack.enter_context(running(command, threads))
            values["llama.cpp ready s"] = theirs.ready_seconds
            values["llama.cpp ready processor s"] = theirs.ready_processor
            completions["llama.cpp"] = Completions(theirs, words, config, rounds, {})
        timings = rounds.times(completions)
    for one, timing in timings.items():
        values[f"{one} completions a second"] = len(timing.seconds) / sum(timing.seconds)
        values[f"{one} wall s"] = statistics.median(completions[one].wall[1:])
    timings["a letter more"] = Timing(tuple(letters[1:]), (1,) * (len(letters) - 1))
    timings["a letter more, processor"] = Timing(tuple(spent[1:]), (1,) * (len(spent) - 1))
    references = dict.fromkeys((one for one in completions if one != "base"), "base")
    case = {
        "model": name,
        "learned": config.text.name,
        "typed": config.typed.name,
        "context": config.context,
        "letters": config.letters,
        "tokens": config.tokens,
    }
    return Row("serve", case, timings, references, values)


def _command(name: str, rounds: Rounds) -> list[str]:
    """Return the command of this project's server."""
    options = ["--name", SERVED, "--device", str(rounds.device), "--port", "{port}"]
    return [sys.executable, "-m", "hebblm.cli.main", "serve", name, *options]


def _llama_command(python: Path, file: Path, threads: int) -> list[str]:
    """Return the command of llama.cpp's server."""
    script = Path(__file__).with_name("llama_server.py")
    return [str(python), str(script), str(file), "{port}", str(threads)]


def _gguf(name: str) -> Path | None:
    """Return the file of llama.cpp that a model is read from; None for a model of another form."""
    if name in PRETRAINED:
        model = PRETRAINED[name]
        return model.path if model.on_disk and not model.cached else None
    return Path(name) if name.endswith(GGUF) else None


def _suggestions(
    config: ServeBenchConfig, server: RunningServer, words: list[str]
) -> tuple[list[float], list[float]]:
    """Ask for suggestions after each letter, as a keyboard does.

    Returns:
        Seconds of each question, and those of processor time; the first one reads the context.
    """
    count = _words_of(server, words, config.context)
    context, typed = " ".join(words[:count]) + " ", " ".join(words[count:])
    if len(typed) < config.letters:
        raise UserError(f"typed = {config.typed} is too short; name a longer text")
    seconds, processor = [], []
    for letters in range(config.letters + 1):
        asked = server.ask("/v1/suggest", {"prefix": context + typed[:letters], "n": 3})
        seconds.append(asked.seconds)
        processor.append(asked.processor)
    return seconds, processor


def _words_of(server: RunningServer, words: list[str], tokens: int) -> int:
    """Return how many words have at most so many tokens; their number rises with the words."""
    least, most = 1, len(words)
    while least < most:
        middle = (least + most + 1) // 2
        text = " ".join(words[:middle])
        count = server.ask("/tokenize", {"prompt": text, "add_special_tokens": False}).body["count"]
        if count > tokens:
            most = middle - 1
        else:
            least = middle
    return least


def _percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    """Return the 50th and the 95th percentile, milliseconds."""
    parts = statistics.quantiles(seconds, n=20, method="inclusive")
    return {f"{name} p50 ms": 1000 * parts[9], f"{name} p95 ms": 1000 * parts[18]}
