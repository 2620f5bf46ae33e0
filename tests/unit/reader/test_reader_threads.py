"""Several threads that ask one reader, let it read, forget and save get what they would get one
after the other.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

import hebblm
from hebblm.errors import UserError
from hebblm.models.awd import AwdBase
from hebblm.reader.history import Journal

from ...support import toy

TEXT = "The function frobnitz returns a list of snarks .\nCall frobnitz with two arguments .\n"
THREADS = 8
WAIT = 120.0
DYNAMIC = {"dynamic.rule": "sgd", "dynamic.lr": 8e-4}
CONTEXTS = {"The": ("wug", "snark"), "": ("None", "a quux")}

Ask = Callable[[hebblm.Reader], Any]


@pytest.fixture(scope="module")
def words() -> hebblm.LanguageModel:
    return hebblm.load("tiny-pydoc-raw", device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def _frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "now", lambda self: self.time or "2026-05-03T10:00:00+00:00")


def questions(reader: hebblm.Reader) -> list[Ask]:
    ids = reader.vocabulary.encode("Call the function with a list .", include=False).ids
    states = torch.randn(
        3, reader.session.base.head.weight.shape[1], generator=torch.Generator().manual_seed(5)
    )

    def asked(context: str, alternatives: tuple[str, ...]) -> list[Ask]:
        return [
            lambda one: one.suggest(context, 3, budget=8),
            lambda one: one.explain(context, 2, budget=8),
            lambda one: one.generate(context, max_new_tokens=3, seed=len(context)),
            lambda one: one.generate(context, max_new_tokens=3, temperature=0, draft=True),
            lambda one: one.rank([f"{context} {end}" for end in alternatives], "The list . "),
            lambda one: one.log_probs(ids[: 3 + len(context)], last=2).tolist(),
            lambda one: [part.tolist() for part in one.predict(states + len(context), [ids] * 3)],
            lambda one: (len(one), repr(one), one.documents()),
        ]

    return [
        ask for context, alternatives in CONTEXTS.items() for ask in asked(context, alternatives)
    ]


def together(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """Return what each thread's work gives; all begin at once."""
    barrier = threading.Barrier(threads)

    def begin(number: int) -> Any:
        barrier.wait(WAIT)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return [
            each.result(WAIT) for each in [pool.submit(begin, number) for number in range(threads)]
        ]


@pytest.mark.parametrize(
    ("kind", "method"),
    [("tiny-pydoc-raw", "dynamic+best"), ("llama-wt2-small", "best")],
)
def test_threads_that_ask_get_the_answers_of_one(kind: str, method: str) -> None:
    """Two readers of one model; each thread asks both, and begins with another question."""
    lm = hebblm.load(kind, device=torch.device("cpu"))
    readers = [
        lm.reader(method, settings=DYNAMIC if "dynamic" in method else None) for _ in range(2)
    ]
    readers[0].read(TEXT)
    readers[1].read(TEXT.replace("frobnitz", "quux"))
    asked = [(reader, ask) for reader in readers for ask in questions(reader)]
    expected = [ask(reader) for reader, ask in asked]

    def work(number: int) -> list[Any]:
        order = [(place + number * 5) % len(asked) for place in range(number % 2, len(asked), 2)]
        return [(place, asked[place][1](asked[place][0])) for place in order]

    for found in together(work):
        assert [answer for _, answer in found] == [expected[place] for place, _ in found]
    assert [ask(reader) for reader, ask in asked] == expected


def test_what_threads_do_to_a_reader_is_done_one_after_the_other(  # noqa: C901 - one story
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    """Some read, forget, save, and some ask; a second reader does the same in the order in which it
    was done.
    """
    reader, done = words.reader("best", update_every=7), []
    reader.read(TEXT, name="first")
    asked: list[Ask] = [
        lambda one: one.suggest("The", 3),
        lambda one: one.log_probs([5, 9, 7]).tolist(),
    ]

    def noted(act: tuple[str, Any]) -> Callable[[int, int], None]:
        """Return a progress function that notes an act at its end, while no other thread has its
        turn.
        """

        def moved(now: int, total: int) -> None:
            if now == total and act not in done:
                done.append(act)

        return moved

    def change(number: int) -> None:
        for turn in range(2):
            name, text = (
                f"{number} {turn}",
                f"The wug{number} returns frobnitz {turn} .\nCall wug{number} .\n" * 2,
            )
            if number % 2:
                reader.read(text, name=name, progress=noted(("read", (name, text))))
            else:
                both = {f"{name} a": text, f"{name} b": TEXT}
                reader.read(both, progress=noted(("read", both)))
                name = f"{name} a"
            reader.save(tmp_path / f"saved {number} {turn}")
            if turn:
                reader.forget(name, progress=noted(("forget", name)))

    def ask(number: int) -> list[Any]:
        return [asked[number % 2](reader) for _ in range(12)]

    answers = together(lambda number: change(number) if number < 4 else ask(number))[4:]
    other = words.reader("best", update_every=7)
    other.read(TEXT, name="first")
    states, listed = [[ask(other) for ask in asked]], [other.documents()]
    for kind, what in done:
        if kind == "forget":
            other.forget(what)
        elif isinstance(what, dict):
            other.read(what)
        else:
            other.read(what[1], name=what[0])
        states.append([ask(other) for ask in asked])
        listed.append(other.documents())
    assert len(done) == 4 * (2 + 1)
    for number, found in enumerate(answers):
        place, known = 0, [state[number % 2] for state in states]
        for answer in found:  # each is that of one of the states, none older than the one before
            place = known.index(answer, place)
    reader.save(tmp_path / "one")
    other.save(tmp_path / "other")
    assert toy.files_in(tmp_path / "one") == toy.files_in(tmp_path / "other")
    for folder in tmp_path.glob("saved *"):
        assert words.reader(memory=folder).documents() in listed


def test_between_the_parts_of_a_text_others_ask(words: hebblm.LanguageModel) -> None:
    pieces: SimpleQueue[str | None] = SimpleQueue()
    reader, other = words.reader("mixture", update_every=5), words.reader("mixture", update_every=5)
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(
            lambda: sum(len(part) for part in reader.read_pieces(iter(pieces.get, None), name="a"))
        )
        pieces.put(TEXT)
        while len(reader) < 15:
            pass
        assert pool.submit(reader.suggest, "The wug", 3).result(WAIT), (
            "the next piece has not come, and nobody waits"
        )
        pieces.put("Call wug , blarg .\n")
        pieces.put(None)
        found = reading.result(WAIT)
    other.read(TEXT + "Call wug , blarg .\n", name="a")
    assert found == len(other)
    assert reader.vocabulary.words == other.vocabulary.words
    assert reader.suggest("The wug", 3) == other.suggest("The wug", 3)


def test_what_fails_between_the_parts_of_a_text_leaves_its_words_alone(
    words: hebblm.LanguageModel,
) -> None:
    reader, other = (words.reader("mixture", update_every=30) for _ in range(2))
    parts = reader.read_pieces([TEXT * 2, " Call wug , blarg .\n"])
    next(parts)
    with pytest.raises(UserError, match="half a surrogate pair"):
        reader.read("half \ud800")
    assert reader.vocabulary.words == ["frobnitz", "snarks"]
    list(parts)
    other.read(TEXT * 2 + " Call wug , blarg .\n")
    assert (
        reader.vocabulary.words == other.vocabulary.words == ["frobnitz", "snarks", "wug", "blarg"]
    )
    assert reader.suggest("Call", 3) == other.suggest("Call", 3)


def test_a_wait_that_is_broken_off_leaves_all_as_it_was(
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = words.reader("mixture")
    reader.read(TEXT, name="a")
    reader.save(tmp_path / "before")
    waiting, go = threading.Event(), threading.Event()

    def hold(now: int, total: int) -> None:
        waiting.set()
        assert go.wait(WAIT)
        raise RuntimeError("not read")

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(reader.read, "Call wug .\n", name="b", progress=hold)
        assert waiting.wait(WAIT)
        for call in (
            reader.suggest,
            reader.begin,
            lambda: reader.forget("a"),
            lambda: next(reader.read_pieces([TEXT])),
        ):
            interrupt = threading.Timer(
                0.2, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]
            )
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                call()
            interrupt.join()
        go.set()
        with pytest.raises(RuntimeError, match="not read"):
            held.result(WAIT)
    reader.forget("b")
    reader.save(tmp_path / "after")
    assert toy.files_in(tmp_path / "after") == toy.files_in(tmp_path / "before")
    assert reader.suggest("The function", 1)[0].word == "frobnitz"


def test_a_progress_function_may_ask(words: hebblm.LanguageModel) -> None:
    reader, found = words.reader("mixture"), []
    reader.read(TEXT, name="a", progress=lambda now, total: found.append(reader.suggest("The", 1)))
    reader.forget("a", progress=lambda now, total: found.append(reader.suggest("The", 1)))
    assert len(found) == 2


@pytest.mark.usefixtures("two_threads")
def test_a_thread_that_comes_while_another_reads_alone_has_all_of_torchs_threads(
    words: hebblm.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small recurrent model reads on one thread, which torch would hand on to threads that begin
    meanwhile.
    """
    reader, other = words.reader("mixture"), words.reader("mixture")
    read, inside, go = AwdBase._states, threading.Event(), threading.Event()

    def slow(self: AwdBase, ids: torch.Tensor) -> torch.Tensor:
        if self is reader.session.base._base:
            self.parameters()  # of its own, or the other reader would wait as well
            forward = self.model.forward
            monkeypatch.setattr(
                self.model, "forward", lambda *a: (inside.set(), go.wait(WAIT), forward(*a))[-1]
            )
        return read(self, ids)

    monkeypatch.setattr(AwdBase, "_states", slow)

    def come() -> tuple[int, int]:
        other.suggest("The", 1)
        before = torch.get_num_threads()
        go.set()
        return before, torch.get_num_threads()

    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        reading = first.submit(reader.read, TEXT)
        assert inside.wait(WAIT)
        assert second.submit(come).result(WAIT) == (2, 2)
        reading.result(WAIT)
        assert first.submit(torch.get_num_threads).result(WAIT) == 2
    assert torch.get_num_threads() == 2


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
