"""The server answers what a reader answers, over OpenAI's interface and its own."""
# ruff: noqa: E402  (what follows importorskip needs what it asks for)

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

for needed in ("starlette", "uvicorn", "sse_starlette", "prometheus_client", "openai", "lm_eval"):
    pytest.importorskip(needed)

import openai
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI

import hebblm
from hebblm.cli.serve import main as serve_main
from hebblm.integrations.lm_eval import AdaptedLM

from ..support.pieces import tokenizer_of
from ..support.served import MODEL, Served, serving
from ..unit.models.architectures import random_model

NOTES = "The function frobnitz returns a list of snarks .\nCall frobnitz with two arguments .\n"
LIST = "the end of the list né 東京 👩‍👧 the list is long . of the war\n" * 3
WINDOW = 64


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a byte-level tokenizer, whose memory knows a text."""
    folder = tmp_path_factory.mktemp("llama")
    tokenizer = tokenizer_of("byte-level")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}the {% endif %}"
    )
    random_model("Llama", vocab_size=len(tokenizer)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    reader = loaded(folder).reader("best")
    reader.read(LIST, name="list")
    reader.begin()
    reader.save(folder / "memory")
    return folder


def loaded(folder: Path) -> hebblm.LanguageModel:
    return hebblm.load(folder / "model", device="cpu", context=WINDOW, stride=WINDOW // 2)


@pytest.fixture(scope="module")
def pieces(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("pieces")
    shutil.copytree(llama / "memory", folder / "memory")
    options = ["--memory", str(folder / "memory"), "--context", str(WINDOW), "--device", "cpu"]
    with serving(folder, str(llama / "model"), *options) as served:
        yield served


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("words"), "tiny-pydoc-raw") as served:
        yield served


def client(served: Served, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.address}/v1", api_key=key, max_retries=0)


@pytest.mark.parametrize("prompt", ["the end of the", "the end of the li", "né ", "of the\n"])
def test_a_stream_is_what_the_reader_generates(pieces: Served, llama: Path, prompt: str) -> None:
    reader = loaded(llama).reader(memory=llama / "memory")
    reader.begin()
    expected = reader.generate(prompt, max_new_tokens=20, temperature=0)
    asked = {"model": MODEL, "prompt": prompt, "max_tokens": 20, "temperature": 0}
    stream = client(pieces).completions.create(**asked, stream=True)
    parts = [part.choices[0].text for part in stream]
    assert "".join(parts) == expected
    assert not any("\ufffd" in part for part in parts)
    assert client(pieces).completions.create(**asked).choices[0].text == expected


def test_a_stream_of_words_is_what_the_reader_generates(words: Served) -> None:
    memory = {"memory": "stream"}
    words.post("/v1/documents", text=NOTES, name="notes", **memory)
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("best")
    reader.read(NOTES, name="notes")
    reader.begin()
    for prompt in ("Call", "The func", "", "Call frobnitz with "):
        expected = reader.generate(prompt, max_new_tokens=12, temperature=0)
        stream = client(words).completions.create(
            model=MODEL, prompt=prompt, max_tokens=12, temperature=0, stream=True,
            extra_body=memory,
        )  # fmt: skip
        assert "".join(part.choices[0].text for part in stream) == expected


def test_a_seed_repeats_and_the_controls_are_those_of_the_reader(
    pieces: Served, llama: Path
) -> None:
    reader = loaded(llama).reader(memory=llama / "memory")
    reader.begin()
    expected = reader.generate(
        "the end ", max_new_tokens=15, temperature=0.8, seed=7, top_k=20, top_p=0.9
    )
    for _ in range(2):
        found = client(pieces).completions.create(
            model=MODEL, prompt="the end ", max_tokens=15, temperature=0.8, seed=7, top_p=0.9,
            extra_body={"top_k": 20},
        )  # fmt: skip
        assert found.choices[0].text == expected


def test_usage_and_the_end_of_a_stream(pieces: Served) -> None:
    stream = client(pieces).completions.create(
        model=MODEL, prompt=["the end", "of"], max_tokens=3, n=2, stream=True, temperature=0,
        stream_options={"include_usage": True},
    )  # fmt: skip
    parts = [*stream]
    assert parts[-1].choices == []
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens <= 12
    ends = {part.choices[0].index: part.choices[0].finish_reason for part in parts[:-1]}
    assert set(ends) == {0, 1, 2, 3}
    assert set(ends.values()) <= {"stop", "length"}
    texts = ["".join(part.choices[0].text for part in parts[:-1] if part.choices[0].index == one)
             for one in range(4)]  # fmt: skip
    assert texts[0] == texts[1]


def test_echo_has_an_entry_for_each_token_of_the_prompt_and_one_more(pieces: Served) -> None:
    ids = pieces.post("/tokenize", prompt="né the list 東京 of the", add_special_tokens=False)
    for given in (ids["tokens"], ids["tokens"][:3], ids["tokens"][4:9]):
        answer = pieces.post(
            "/v1/completions", model=MODEL, prompt=[given], max_tokens=1, logprobs=1, echo=True,
            temperature=0, seed=1,
        )  # fmt: skip
        choice, parts = answer["choices"][0], answer["choices"][0]["logprobs"]
        assert [len(column) for column in parts.values()] == [len(given) + 1] * 4
        assert parts["token_logprobs"][0] is None
        assert parts["top_logprobs"][0] is None
        for value, top in zip(parts["token_logprobs"][1:], parts["top_logprobs"][1:], strict=True):
            assert value in top.values()
            assert value <= max(top.values())
        assert "".join(parts["tokens"]) == choice["text"]
        for offset, token in zip(parts["text_offset"], parts["tokens"], strict=True):
            assert choice["text"][offset : offset + len(token)] == token
        assert answer["usage"]["prompt_tokens"] == len(given)
    scored = pieces.post(
        "/v1/completions", model=MODEL, prompt=[ids["tokens"]], max_tokens=0, logprobs=0, echo=True
    )["choices"][0]["logprobs"]
    assert len(scored["tokens"]) == len(ids["tokens"])


def test_an_entry_is_there_for_a_token_that_ends_the_text(pieces: Served) -> None:
    ended = 0
    for seed in (2001, 3001):
        answer = pieces.post(
            "/v1/completions", model=MODEL, prompt=[[5, 6, 7]], max_tokens=1, echo=True, n=100,
            logprobs=1, seed=seed, temperature=100,
        )  # fmt: skip
        for choice in answer["choices"]:
            assert len(choice["logprobs"]["token_logprobs"]) == 4
            assert choice["logprobs"]["token_logprobs"][3] is not None
            ended += choice["finish_reason"] == "stop"
    assert ended, "no token that ends the text was drawn"


def test_log_probabilities_do_not_depend_on_how_a_text_is_split(pieces: Served) -> None:
    ids = pieces.post("/tokenize", prompt=LIST, add_special_tokens=False)["tokens"][:50]

    def scored(tokens: list[int], most: int) -> list[float]:
        found = pieces.post(
            "/v1/completions", model=MODEL, prompt=[tokens], max_tokens=most, logprobs=0,
            echo=True, temperature=0,
        )  # fmt: skip
        return found["choices"][0]["logprobs"]["token_logprobs"][1:]

    whole = scored(ids, 0)
    for length in (1, 9, 10, 11, 25, 49):
        assert scored(ids[:length], 0) == pytest.approx(whole[: length - 1], abs=1e-4)
    drawn = pieces.post(
        "/v1/completions", model=MODEL, prompt=[ids[:20]], max_tokens=15, logprobs=0, temperature=0
    )["choices"][0]
    more = pieces.post("/tokenize", prompt=drawn["text"], add_special_tokens=False)["tokens"]
    again = scored([*ids[:20], *more], 0)
    count = len(drawn["logprobs"]["token_logprobs"])
    if len(more) == count:  # its tokens are those that the tokenizer makes of its text
        assert again[19:] == pytest.approx(drawn["logprobs"]["token_logprobs"], abs=1e-4)


def requests_of(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, given, index) for index, given in enumerate(arguments)]


CONTINUATIONS = [
    ("the end of the", " list is long"), ("of the war", " né"), ("the", " list"),
    ("né 東京 👩‍👧 the list", " is long . of the"), ("là , the", " café"),
]  # fmt: skip


def harness(served: Served, **more: Any) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(
        base_url=f"{served.address}/v1/completions", model=more.pop("model", MODEL),
        tokenizer_backend="auto", max_length=WINDOW + 1, **more,
    )  # fmt: skip


@pytest.mark.parametrize(("batch", "concurrent"), [(1, 1), (4, 1), (1, 4)])
def test_the_harness_gets_the_numbers_of_the_model_in_process(
    pieces: Served, llama: Path, batch: int, concurrent: int
) -> None:
    theirs = harness(pieces, batch_size=batch, num_concurrent=concurrent)
    ours = AdaptedLM(
        str(llama / "model"), memory=str(llama / "memory"), device="cpu", context=WINDOW
    )
    asked = requests_of("loglikelihood", *CONTINUATIONS)
    _agree(theirs.loglikelihood(asked), ours.loglikelihood(asked))


def test_the_base_of_the_server_is_the_harness_own_model(pieces: Served, llama: Path) -> None:
    theirs = harness(pieces, model=f"{MODEL}:base")
    ours = HFLM(str(llama / "model"), device="cpu", dtype="float32", max_length=WINDOW)
    asked = requests_of("loglikelihood", *CONTINUATIONS)
    _agree(theirs.loglikelihood(asked), ours.loglikelihood(asked))
    # the harness asks a server for one token less at a time, for it sends all of them
    ours = HFLM(str(llama / "model"), device="cpu", dtype="float32", max_length=WINDOW - 1)
    rolling = requests_of("loglikelihood_rolling", (LIST[:120],))
    found, expected = theirs.loglikelihood_rolling(rolling), ours.loglikelihood_rolling(rolling)
    assert found == pytest.approx(expected, abs=1e-3)


def _agree(found: list[tuple[float, bool]], expected: list[tuple[float, bool]]) -> None:
    for (one, greedy), (other, best) in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
        assert greedy == best
    assert len({round(one, 3) for one, _ in found}) == len(found)


def test_clients_at_once_get_what_one_gets_after_the_other(pieces: Served) -> None:
    prompts = ["the end", "of the", "né", "the list is", "war", "là", "the  list", "end of"]

    def asked(prompt: str) -> tuple[str, Any, list[Any]]:
        text = client(pieces).completions.create(
            model=MODEL, prompt=prompt, max_tokens=12, temperature=0
        ).choices[0].text  # fmt: skip
        words = pieces.post("/v1/suggest", prefix=prompt, n=3)["suggestions"]
        ranked = pieces.post("/v1/rank", alternatives=["the list", "the war"], before=prompt)
        return text, [word["word"] for word in words], [one["text"] for one in ranked["ranked"]]

    alone = [asked(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(asked, prompts)] == alone


def test_a_conversation_is_written_by_the_tokenizers_template(pieces: Served) -> None:
    messages: Any = [{"role": "user", "content": "the list"}]
    asked: Any = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0}
    found = client(pieces).chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    choice = found.choices[0]
    ids = pieces.post("/tokenize", prompt="user: the list\nthe ", add_special_tokens=False)
    plain = pieces.post(
        "/v1/completions", model=MODEL, prompt=ids["tokens"], max_tokens=8, temperature=0
    )
    assert choice.message.content == plain["choices"][0]["text"]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content[0].top_logprobs) >= 2
    parts = [*client(pieces).chat.completions.create(**asked, stream=True)]
    assert "".join(part.choices[0].delta.content or "" for part in parts) == choice.message.content
    assert parts[0].choices[0].delta.role == "assistant"


def test_a_model_of_words_has_no_conversations(words: Served) -> None:
    status, found = words.ask(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": ""}]}
    )
    assert status == 400
    assert "no chat template" in found["error"]["message"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": "another"}, "no model 'another'"),
    ({"prompt": [[1, 10_000]]}, "id 10000"),
    ({"prompt": [[1] * (WINDOW + 1)]}, f"reads {WINDOW}"),
    ({"prompt": "the list " * 60}, f"reads {WINDOW}"),
    ({"prompt": [1, "a"]}, "list of either"),
    ({"prompt": []}, "list of either"),
    ({"suffix": "x"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"presence_penalty": 1.0}, "presence_penalty"),
    ({"logit_bias": {"1": 5}}, "logit_bias"),
    ({"n": 0}, "n = 0"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -7}, "top_k"),
    ({"logprobs": 1000}, "logprobs"),
    ({"stop": [""]}, "stop"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"memory": "../secret"}, "memory"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_be_answered_is_one_line(
    pieces: Served, change: dict[str, Any], message: str
) -> None:
    status, found = pieces.ask("/v1/completions", {"model": MODEL, "prompt": "the", **change})
    assert status == 400
    assert message in found["error"]["message"]
    assert "\n" not in found["error"]["message"]
    assert found["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"prompt": {}}', b"\xff\xfe", b"[" * 100_000, b'"' * 5]
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/documents", "/v1/suggest", "/tokenize"])
def test_a_malformed_body_is_one_line(pieces: Served, path: str, body: bytes) -> None:
    status, found = pieces.ask(path, body, method="POST")
    # all fields of these have defaults, and fields that nobody knows are left out
    fits = path == "/v1/completions" and body == b""
    fits |= path == "/v1/suggest" and body in (b"", b'{"prompt": {}}')
    if not fits:
        assert 400 <= status < 500
        assert "\n" not in found["error"]["message"]


def test_nothing_that_is_asked_is_learned(pieces: Served) -> None:
    before = pieces.ask("/v1/documents")[1]
    for _ in range(3):
        pieces.post("/v1/completions", model=MODEL, prompt="Frobnitz is a snark", max_tokens=5)
        pieces.post("/v1/suggest", prefix="Frobnitz is a ")
        pieces.post("/v1/rank", alternatives=["Frobnitz", "snark"], before="the ")
        pieces.post("/v1/explain", prefix="Frobnitz is a ", n=1)
    assert pieces.ask("/v1/documents")[1] == before


def test_documents_are_added_replaced_and_deleted(words: Served) -> None:
    memory = {"memory": "project"}

    def best() -> Any:
        return words.post("/v1/suggest", prefix="The function frob", n=1, **memory)["suggestions"]

    assert best() == []
    words.post("/v1/documents", text=NOTES, name="notes", **memory)
    assert best()[0]["word"] == "frobnitz"
    assert best()[0]["insert_text"] == "nitz"
    why = words.post("/v1/explain", prefix="The function ", n=1, **memory)["explanations"][0]
    assert {entry["document"] for entry in why["entries"]} == {"notes"}
    assert sum(why["shares"].values()) == pytest.approx(why["probability"], abs=1e-5)
    words.ask("/v1/documents", {"name": "notes", "text": "The function frobble .", **memory},
              method="PUT")  # fmt: skip
    assert best()[0]["word"] == "frobble"
    listed = words.ask("/v1/documents?memory=project")[1]["documents"]
    assert [(one["name"], one["status"]) for one in listed] == [("notes", "learned")]
    base = words.post("/v1/suggest", prefix="The function frob", n=1, adapted=False, **memory)
    assert base["suggestions"] == []
    assert words.ask("/v1/documents", {"name": "notes", **memory}, method="DELETE")[0] == 200
    assert best() == []
    assert words.ask("/v1/documents", {"name": "notes", **memory}, method="DELETE")[0] == 404
    assert f"{MODEL}:project" in [one.id for one in client(words).models.list()]


def test_what_was_taken_is_learned_and_what_is_blocked_is_not_suggested(words: Served) -> None:
    memory = {"memory": "feedback"}
    for _ in range(3):
        words.post("/v1/feedback", prefix="Please call ", suggestion="frobnitz now", taken=True,
                   **memory)  # fmt: skip
    found = words.post("/v1/suggest", prefix="Please call ", n=3, **memory)["suggestions"]
    assert "frobnitz" in [one["word"] for one in found]
    words.post("/v1/feedback", prefix="Please call ", suggestion="frobnitz", taken=False,
               block=True, **memory)  # fmt: skip
    found = words.post("/v1/suggest", prefix="Please call ", n=3, **memory)["suggestions"]
    assert "frobnitz" not in [one["word"] for one in found]
    assert len(found) == 3
    drawn = words.post("/v1/completions", model=MODEL, prompt="Please call ", temperature=0,
                       max_tokens=6, **memory)  # fmt: skip
    assert "frobnitz" not in drawn["choices"][0]["text"]
    assert words.ask("/v1/block?memory=feedback")[1]["words"] == ["frobnitz"]
    words.ask("/v1/block", {"words": ["Frobnitz"], **memory}, method="DELETE")
    found = words.post("/v1/suggest", prefix="Please call ", n=3, **memory)["suggestions"]
    assert "frobnitz" in [one["word"] for one in found]


def test_learning_goes_on_beside_questions(words: Served) -> None:
    text = "The function frobnitz returns a list of snarks and gimbles .\n" * 150
    words.post("/v1/documents", text=text, name="long", memory="beside", wait=False)
    asked = learned = 0
    while not learned:
        status, answer = words.ask("/v1/documents?memory=beside")
        assert status == 200, answer
        listed = answer["documents"]
        learned = sum(one["status"] == "learned" for one in listed)
        begun = time.monotonic()
        words.post("/v1/suggest", prefix="The function ", n=3, memory="beside")
        assert time.monotonic() - begun < 5
        asked += not learned
        time.sleep(0.05)  # answers are so quick that their rate would be refused
    assert asked > 1


def test_a_client_that_goes_away_ends_its_answer(words: Served) -> None:
    body = json.dumps(
        {"model": MODEL, "prompt": "The", "max_tokens": 4000, "stream": True}
    ).encode()
    host, _, port = words.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as one:
        one.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
            + str(len(body)).encode() + b"\r\n\r\n" + body
        )  # fmt: skip
        assert b"data:" in one.recv(4096) + one.recv(4096)
    end = time.monotonic() + 10
    while "hebblm_in_work 0.0" not in words.ask("/metrics")[1]:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_log_holds_no_text_and_metrics_count(words: Served) -> None:
    words.post("/v1/completions", model=MODEL, prompt="Secretword is", max_tokens=2)
    words.post("/v1/documents", text="Secretword is here .", name="secretname", memory="log")
    words.ask("/v1/documents?memory=secretname")
    words.ask("/secretpath")
    log = words.log.read_text()
    assert not re.search("secret", log, re.IGNORECASE)
    assert "POST /v1/completions 200" in log
    page = words.ask("/metrics")[1]
    assert re.search(r'hebblm_tokens_total\{kind="learned"\} [1-9]', page)
    assert re.search(r'hebblm_documents\{memory="log"\} 1.0', page)
    assert re.search(r'hebblm_requests_total\{route="/v1/completions",status="200"\}', page)


def test_a_page_from_elsewhere_and_another_name_are_refused(words: Served) -> None:
    assert words.ask("/v1/models", headers={"Host": "evil.example"})[0] == 403
    assert words.ask("/v1/models", headers={"Origin": "http://evil.example"})[0] == 403
    assert words.ask("/v1/models", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    own = words.address.removeprefix("http://")
    assert words.ask("/v1/models", headers={"Origin": f"http://{own}"})[0] == 200
    assert words.ask("/v1/models", headers={"Host": "localhost"})[0] == 200
    assert words.ask("/v1/nothing")[0] == 404
    assert words.ask("/v1/completions")[0] == 405


def test_what_cannot_be_served_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short"
    short.write_text("abc")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for words, message in [
            (["tiny-pydoc-raw", "--host", "0.0.0.0"], "--api-key-file"),
            (["tiny-pydoc-raw", "--api-key-file", str(short)], "at least 16"),
            (["tiny-pydoc-raw", "--api-key-file", str(tmp_path / "none")], "cannot be read"),
            (["tiny-pydoc-raw", "--method", "dynamic"], "share"),
            (["tiny-pydoc-raw", "--watch", str(tmp_path / "none")], "not a folder"),
            (["tiny-pydoc-raw", "--port", "70000"], "port = 70000"),
            (["tiny-pydoc-raw", "--port", str(taken.getsockname()[1])], "--port"),
            ([str(tmp_path)], "it holds no model"),
        ]:
            assert serve_main(words) == 2
            error = capsys.readouterr().err
            assert message in error
            assert error.count("\n") == 1


def test_without_the_extra_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hebblm.cli.serve.find_spec", lambda name: None)
    assert serve_main(["tiny-pydoc-raw"]) == 2
    error = capsys.readouterr().err
    assert "pip install -e '.[serve]' in the checkout" in error
    assert error.count("\n") == 1


def test_a_key_is_needed_where_there_is_one(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123\n")
    options = ["--host", "0.0.0.0", "--api-key-file", str(key), "--allowed-host", "notes.example"]
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        assert served.ask("/health")[0] == 200
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}):
            assert served.ask("/v1/models", headers=headers)[0] == 401
        right = {"Authorization": "Bearer 0123456789abcdef0123"}
        assert served.ask("/v1/models", headers=right)[0] == 200
        assert served.ask("/v1/models", headers={**right, "Host": "notes.example"})[0] == 200
        assert served.ask("/v1/models", headers={**right, "Host": "evil.example"})[0] == 403
        with pytest.raises(openai.AuthenticationError):
            client(served, "wrong").models.list()
        assert client(served, "0123456789abcdef0123").models.list().data[0].id == MODEL
        assert served.end() == 0


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    options = ["--memory", str(tmp_path / "memories")]
    kept: list[str] = []
    for round in range(3):
        with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
            listed = served.ask("/v1/documents")[1]["documents"]
            assert [one["name"] for one in listed] == kept
            for number in range(3):
                name = f"{round} {number}"
                served.post("/v1/documents", text=f"word{round}x{number} is here . " * 40,
                            name=name, wait=False)  # fmt: skip
                kept.append(name)
            if round == 1:
                served.post("/v1/block", words=["snark"])
            served.end(signal.SIGKILL)
    history = tmp_path / "memories" / "default" / "history.jsonl"
    with history.open("ab") as stream:
        stream.write(b'{"type":"learned","name":"cut sho')
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        listed = served.ask("/v1/documents")[1]["documents"]
        assert [one["name"] for one in listed] == kept
        assert served.ask("/v1/block")[1]["words"] == ["snark"]
        expected = served.post("/v1/suggest", prefix="word", n=9)["suggestions"]
        served.ask("/v1/documents", {"name": kept[0]}, method="DELETE")
        assert served.end() == 0
        assert "memories" in served.log.read_text()
    assert history.read_bytes() == b""
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        listed = served.ask("/v1/documents")[1]["documents"]
        assert [one["name"] for one in listed] == kept[1:]
        found = served.post("/v1/suggest", prefix="word", n=9)["suggestions"]
        assert {one["word"] for one in expected} - {one["word"] for one in found} == {"word0x0"}


def test_a_folder_is_watched(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text(NOTES)
    (folder / "b.txt").write_text("The function barnitz is here .\n")

    def names(served: Served) -> set[str]:
        listed = served.ask("/v1/documents")[1]["documents"]
        return {Path(one["name"]).name for one in listed if one["status"] == "learned"}

    def until(served: Served, expected: set[str]) -> None:
        end = time.monotonic() + 30
        while names(served) != expected:
            assert time.monotonic() < end, names(served)
            time.sleep(0.2)

    options = ["--memory", str(tmp_path / "memories"), "--watch", str(folder)]
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        until(served, {"a.txt", "b.txt"})
        (folder / "b.txt").unlink()
        (folder / "c.txt").write_text("Call the function zork .\n")
        until(served, {"a.txt", "c.txt"})
        assert served.end() == 0
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        until(served, {"a.txt", "c.txt"})
        time.sleep(2)
        assert served.ask("/v1/documents")[1]["documents"][0]["tokens"] == 17
        assert math.isfinite(served.post("/v1/suggest", prefix="Call ", n=1)["bound"])


def test_a_watched_file_that_was_forgotten_is_read_again_only_when_it_changes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text(NOTES)
    (folder / "b.txt").write_text("The function barnitz is here .\n")
    options = ["--memory", str(tmp_path / "memories"), "--watch", str(folder)]

    def names(served: Served) -> set[str]:
        return {Path(one["name"]).name for one in served.ask("/v1/documents")[1]["documents"]}

    def until(served: Served, expected: set[str]) -> None:
        end = time.monotonic() + 30
        while names(served) != expected:
            assert time.monotonic() < end, names(served)
            time.sleep(0.2)

    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        until(served, {"a.txt", "b.txt"})
        name = str(folder / "a.txt")
        assert served.ask("/v1/documents", {"name": name}, method="DELETE")[0] == 200
        assert names(served) == {"b.txt"}
        served.end(signal.SIGKILL)
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        (folder / "c.txt").write_text("Call the function zork .\n")
        until(served, {"b.txt", "c.txt"})  # the folder was looked through, and a.txt left out
        (folder / "a.txt").write_text("The function is other .\n")
        until(served, {"a.txt", "b.txt", "c.txt"})
        assert served.end() == 0
    with serving(tmp_path, "tiny-pydoc-raw", *options) as served:
        (folder / "d.txt").write_text("Call the function again .\n")
        until(served, {"a.txt", "b.txt", "c.txt", "d.txt"})
