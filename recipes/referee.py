"""Proof that others can repeat an evaluation: a text is coded by each method's own probabilities,
and decoded again.

An arithmetic coder writes each token by the distribution that a method had before it. Another
process decodes the text from model, settings, number of tokens and code alone. The code is no
longer than the losses of the ordinary evaluation say, or these are no losses of that method: its
probabilities sum to more than 1, or have seen the answer. It may be shorter: the coder gives every
token 24 bits at most.

The memory begins empty, as a reader's does. Tokens are those that the evaluation scores: <unk>
where the text has it. Which words the target has at all, and how new ones are spelled, is known to
both sides.

Usage: python -m recipes.referee --checkpoint small-ptb-raw --tokens 5000 --methods all --output
FILE
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import pickle
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from constriction import stream as coding
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import STEP, Block
from hebblm.adapt.methods import METHODS, named
from hebblm.adapt.methods.ngram import NgramConfig
from hebblm.api.request import Request
from hebblm.cli.common import guarded, print_line
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.passes import dynamic_base, gradient_statistics
from hebblm.evaluation.run import run_scenario
from hebblm.evaluation.scenario import Scenario
from hebblm.io.files import check_writable, write_json
from hebblm.models.catalog import model_folder, trained_on
from hebblm.online.session import OnlineSession
from hebblm.online.text import TextSource
from hebblm.runtime.interrupts import interrupted
from hebblm.runtime.progress import bar
from hebblm.text.dictionary import UNK
from recipes import referee_tables
from recipes.bench.machine import cpu_name, use_threads

PROG = "python -m recipes.referee"
# share of the losses by which a code may be longer: the coder rounds probabilities to 24 bits
LONGER = 0.002
END = 64  # bits by which it may be longer besides: it ends with whole words of 32
OFF = 1e-4  # by which a sum of probabilities may miss 1

Code = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Choose = Callable[[Mapping[str, Floats]], int]
"""Returns the next token, given the probabilities (V,) that each method has for it."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge of both sides before the first token: only the length of the text."""

    scenario: Scenario  # without its text
    settings: Hyperparameters
    statistics: list[Tensor] | None  # of the training text, for dynamic evaluation

    @classmethod
    def of(cls, scenario: Scenario, settings: Hyperparameters, *, moving: bool) -> Known:
        """All but the text of a scenario; ``moving`` where a base of dynamic evaluation is to be
        made.
        """
        stream = scenario.stream
        blank = replace(stream, ids=np.zeros_like(stream.ids), lines=0, words=0, bytes=0, lost=0)
        blank = replace(blank, pieces=None, by_word=None, unknown=None)
        if scenario.closed:
            blank = replace(blank, by_word=blank)  # still says that tokens are pieces of words
        textless = replace(
            scenario,
            stream=blank,
            train=None,
            documents=(),
            beginning=None,
            total=None,
            data_sha256={},
        )
        return cls(
            textless, settings, gradient_statistics(scenario, settings.dynamic) if moving else None
        )


@torch.no_grad()
def walk(known: Known, methods: Sequence[str], choose: Choose, title: str) -> list[int]:
    """Predict a text token by token, let ``choose`` say each, and learn every interval as an
    evaluation does.

    All that is known of the text comes from ``choose``, which has seen the probabilities first.
    Encoder and decoder walk here alike, so that these are the same to the bit. The methods read one
    base: all move, or none.
    """
    scenario, settings = known.scenario, known.settings
    stream, every, device = scenario.stream, scenario.config.update_every, scenario.device
    predictors = {name: METHODS[name].predictor(settings.methods) for name in methods}
    base = (
        dynamic_base(scenario, settings.dynamic, known.statistics)
        if METHODS[methods[0]].uses_dynamic_base
        else scenario.base(settings)
    )
    write = any(predictor.requirements.retrieval for predictor in predictors.values())
    window = max(predictor.requirements.window for predictor in predictors.values())
    context = scenario.context(base, scenario.empty_memory(settings), window)
    session = OnlineSession(TextSource(base, scenario.vocabulary), [context], predictors)
    settled = latest = context.ngrams  # as of the last update; as of the last token
    if settings.methods[NgramConfig].fresh == "token":
        latest = copy.deepcopy(settled)

    ids: list[int] = []
    with bar() as progress:
        task = progress.add_task(title, total=len(stream), unit="tokens")
        while len(ids) < len(stream):
            first, states, mixture_weights = len(ids), [], context.mixture_weights
            context.ngrams = latest
            with base.preserve_state():
                for place in range(min(every, len(stream) - first)):
                    hidden = base.read(
                        torch.tensor([ids[-1] if ids else stream.eos], device=device)
                    )
                    if place and place % STEP == 0:
                        context.ngrams, context.mixture_weights = settled, mixture_weights
                        labels = torch.tensor(ids[first:], device=device)
                        so_far = EvalBatch(
                            torch.cat(states), context, Block.of(labels, every, write)
                        )
                        context.ngrams, context.mixture_weights = (
                            latest,
                            so_far.observation(labels).mixture_weights[0],
                        )
                    states.append(hidden)
                    # (1, order)
                    before = None if latest is None else latest.context_after(ids)[None]
                    batch = EvalBatch(hidden, context, contexts=before)
                    found = {
                        name: predictor.log_probs(batch)[0]
                        for name, predictor in predictors.items()
                    }
                    ids.append(
                        choose(
                            {
                                name: each.double().exp().cpu().numpy()
                                for name, each in found.items()
                            }
                        )
                    )
                    if before is not None and latest is not None and latest is not settled:
                        latest.add(before, np.array(ids[-1:]))
            context.ngrams, context.mixture_weights = settled, mixture_weights
            labels = torch.tensor(ids[first:], device=device)
            inputs = torch.tensor(
                [ids[first - 1] if first else stream.eos, *ids[first:-1]], device=device
            )
            batch = EvalBatch(base.read(inputs), context, Block.of(labels, every, write))
            session.learn([(context, batch.observation(labels))], write=write)
            progress.advance(task, len(labels))
    return ids


def coder(probabilities: Floats) -> coding.model.Categorical:
    """Turn probabilities (V,) into a coder's: they are scaled to sum to 1, and each gets 2^-24 at
    least.
    """
    return coding.model.Categorical(probabilities, perfect=False)


@dataclass(slots=True)
class Coded:
    """A text under each method.

    Args:
        codes: by method.
        off: by method, by how much a sum of its probabilities missed 1 at most.
    """

    codes: dict[str, Code]
    off: dict[str, float] = field(default_factory=dict)


def encode(known: Known, methods: Sequence[str], ids: npt.NDArray[np.int64]) -> Coded:
    """Code a text (T,) by methods that read one base."""
    encoders, left = {name: coding.queue.RangeEncoder() for name in methods}, iter(ids.tolist())
    off = dict.fromkeys(methods, 0.0)

    def choose(probabilities: Mapping[str, Floats]) -> int:
        token: int = next(left)
        for name, each in probabilities.items():
            encoders[name].encode(token, coder(each))
            off[name] = max(off[name], abs(float(each.sum()) - 1))
        return token

    walk(known, methods, choose, f"encode by {len(methods)} methods")
    return Coded({name: encoder.get_compressed() for name, encoder in encoders.items()}, off)


class _SplitError(Exception):
    """Methods decoded different tokens; None for a code that says no token."""

    def __init__(self, found: Mapping[str, int | None]) -> None:
        super().__init__(found)
        self.found = found


def decode(
    known: Known, methods: Sequence[str], codes: Mapping[str, Code]
) -> dict[str, list[int] | None]:
    """Decode a text by methods that read one base, each from its own code; None where a code says
    no token.

    They walk together as long as they agree: each then sees what it would see alone. Where they do
    not, those that agree begin again by themselves, so that one that fails is found by its name and
    harms no other.
    """
    decoders = {name: coding.queue.RangeDecoder(codes[name]) for name in methods}

    def choose(probabilities: Mapping[str, Floats]) -> int:
        found = {name: _next(decoders[name], each) for name, each in probabilities.items()}
        token = found[methods[0]]
        if token is None or len(set(found.values())) > 1:
            raise _SplitError(found)
        return token

    try:
        ids = walk(known, methods, choose, f"decode by {len(methods)} methods")
        return dict.fromkeys(methods, ids)
    except _SplitError as split:
        decoded: dict[str, list[int] | None] = {}
        for token in set(split.found.values()):
            agreed = [name for name in methods if split.found[name] == token]
            decoded |= dict.fromkeys(agreed) if token is None else decode(known, agreed, codes)
        return decoded


def _next(decoder: coding.queue.RangeDecoder, probabilities: Floats) -> int | None:
    try:
        return int(decoder.decode(coder(probabilities)))
    except (
        AssertionError
    ):  # constriction's word for a code that was not made by these probabilities
        return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Compare a method's code with its losses.

    Args:
        tokens: of the text.
        code_bytes: length of the code.
        code_bits_per_byte: of the text; the spelling of new words is included, as in an evaluation.
        evaluated_bits_per_byte: by the ordinary evaluation.
        difference: length of the code over what the losses say, spelling apart, less 1.
        off: by how much a sum of probabilities missed 1 at most.
        decoded: whether the decoded tokens are those of the text.
        holds: whether all of this is as it has to be.
    """

    tokens: int
    code_bytes: int
    code_bits_per_byte: float
    evaluated_bits_per_byte: float
    difference: float
    off: float
    decoded: bool
    holds: bool


def examine(
    scenario: Scenario,
    settings: Hyperparameters,
    methods: Sequence[str],
    record: dict[str, Any],
    elsewhere: Callable[..., Any],
) -> Iterator[tuple[dict[str, Verdict], dict[str, float]]]:
    """Evaluate, encode and decode a text; the verdicts by method, and what each part took in
    seconds.

    Both are yielded once a base, with what was found before. ``elsewhere(function, *arguments)``
    calls a function where the text is not known.
    """
    seconds: dict[str, float] = {}

    def timed(part: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        value = call()
        seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - began
        return value

    stream = scenario.stream
    evaluation = timed("evaluate", lambda: run_scenario(scenario, [*methods], settings, record))
    assert evaluation is not None
    verdicts: dict[str, Verdict] = {}
    for moving in (False, True):
        group = [name for name in methods if METHODS[name].uses_dynamic_base == moving]
        if not group:
            continue
        known = Known.of(scenario, settings, moving=moving)
        coded = timed("encode", lambda: encode(known, group, stream.ids))  # noqa: B023 - called at once
        texts = timed("decode", lambda: elsewhere(decode, known, group, coded.codes))  # noqa: B023
        for name in group:
            evaluated = evaluation.result.methods[name].bits_per_byte
            assert evaluated is not None, "opened() takes measured texts alone"
            losses = float(evaluation.nll[name].sum(dtype=np.float64)) / np.log(2)
            length = coded.codes[name].nbytes
            same = texts[name] == stream.ids.tolist()
            fits = bool(8 * length <= (1 + LONGER) * losses + END)
            verdicts[name] = Verdict(
                tokens=len(stream),
                code_bytes=length,
                code_bits_per_byte=stream.bits_per_byte(8 * length * np.log(2) / len(stream)),
                evaluated_bits_per_byte=evaluated,
                difference=8 * length / losses - 1,
                off=coded.off[name],
                decoded=same,
                holds=same and fits and coded.off[name] <= OFF,
            )
        yield {name: verdicts[name] for name in methods if name in verdicts}, seconds


def alone(threads: int) -> Callable[..., Any]:
    """Call functions in fresh processes of so many threads, which have what they are given
    alone.
    """

    def call(*work: Any) -> Any:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            1, mp_context=spawn, initializer=use_threads, initargs=(threads,)
        ) as pool:
            return pool.submit(_call, pickle.dumps(work)).result()

    return call


def _call(work: bytes) -> Any:
    """Call what was pickled; torch would share tensors with another process instead of copying
    them.
    """
    function, *arguments = pickle.loads(work)
    return function(*arguments)


def opened(
    model: str, target: str | None, tokens: int, command: str
) -> tuple[Scenario, Hyperparameters, Any]:
    """The scenario of a model and the first tokens of a text, its settings, and the record of
    provenance.
    """
    if target is None:
        folder = model_folder(Path(model))
        target = None if folder is None else trained_on(folder).get("name")
        if target is None:
            raise UserError(
                f"{model} does not say what it was trained on; name a text with --target"
            )
    request = Request.of(model, target, max_tokens=tokens, memory_content="test", device="cpu")
    scenario, record = request.open("evaluate", command)
    if not scenario.measured:
        raise UserError(
            f"{target} does not say how many bytes its first {tokens:,} tokens are; raise --tokens "
            "until all is read"
        )
    return scenario, request.settings, record


@guarded(PROG)
@interrupted("what was found of a base is written")
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", required=True, help="name or folder of a model")
    parser.add_argument(
        "--target", help="corpus or text that is read; by default the model's own corpus"
    )
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--methods", default="all", help="comma-separated, or all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    words = sys.argv[1:] if argv is None else argv
    options = parser.parse_args(words)
    methods = named(options.methods)
    check_writable(options.output.parent)
    threads = use_threads(options.threads)
    command = shlex.join([*PROG.split(), *words])
    scenario, settings, record = opened(options.checkpoint, options.target, options.tokens, command)
    stream, config = scenario.stream, scenario.config
    text = {
        "source": scenario.source,
        "target": scenario.target,
        "split": scenario.split,
        "bytes": stream.bytes,
        "vocabulary": stream.vocabulary_size,
        "unk_tokens": stream.occurrences(UNK),
        "spelled_bytes": int(stream.spelled.sum()),  # by the evaluation; known to the decoder
        "lost_bytes": stream.lost,
    }
    found: dict[str, Any] = {}
    for verdicts, seconds in examine(scenario, settings, methods, record, alone(threads)):
        found = {name: asdict(verdict) for name, verdict in verdicts.items()}
        write_json(
            options.output,
            {
                "provenance": {**record, "cpu": cpu_name(), "data_sha256": scenario.data_sha256},
                "text": text,
                "settings": {
                    "k": config.k,
                    "update_every": config.update_every,
                    "memory_content": config.memory_content,
                },
                "limits": {"longer": LONGER, "end_bits": END, "off": OFF},
                "seconds": seconds,
                "methods": found,
            },
        )
    print_line(referee_tables.verdicts(found))
    print_line(
        f"Tokens are those that the evaluation scores, {text['unk_tokens']:,} of them {UNK}. The "
        "decoder knows which "
        f"{text['vocabulary']:,} words there are; {text['spelled_bytes']:,} bytes of spelling are "
        "counted, not coded."
    )
    failed = [name for name, verdict in found.items() if not verdict["holds"]]
    print_line(f"does not hold: {', '.join(failed)}" if failed else "all hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
