"""The routes of the server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from itertools import groupby
from typing import Any

import anyio
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

import hebblm
from hebblm.errors import UserError
from hebblm.runtime.progress import log
from hebblm.serve.answers import (
    Completions,
    as_completion,
    chat_logprobs,
    chat_prompt,
    completion_head,
    joined,
)
from hebblm.serve.bodies import (
    BlockBody,
    Chat,
    Completion,
    Detokenize,
    DocumentBody,
    DocumentName,
    Drawing,
    Feedback,
    Rank,
    Suggest,
    Tokenize,
    decode,
)
from hebblm.serve.config import ServeOptions
from hebblm.serve.errors import ApiError
from hebblm.serve.memories import NamedMemory
from hebblm.serve.metrics import Metrics
from hebblm.serve.safety import Guard
from hebblm.serve.service import Service, counted, pieces_of
from hebblm.serve.work import Workers

Json = dict[str, Any]
Shape = Callable[[int, str, Json | None, str | None], Json]
Event = dict[str, str]


class Server:
    """The application over a service.

    Args:
        service: answers.
        options: who may ask.
        metrics: counts.
        workers: threads that answer.
    """

    def __init__(
        self, service: Service, options: ServeOptions, metrics: Metrics, workers: Workers
    ) -> None:
        self._service, self._options = service, options
        self._metrics, self._workers = metrics, workers

    def app(self) -> ASGIApp:
        """Return the application with all its checks."""
        routes = [
            Route("/", self.page),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/tokenizer_info", self.tokenizer_info),
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/suggest", self.suggest, methods=["POST"]),
            Route("/v1/explain", self.explain, methods=["POST"]),
            Route("/v1/rank", self.rank, methods=["POST"]),
            Route("/v1/documents", self.documents, methods=["GET"]),
            Route("/v1/documents", self.add_document, methods=["POST", "PUT"]),
            Route("/v1/documents", self.delete_document, methods=["DELETE"]),
            Route("/v1/feedback", self.feedback, methods=["POST"]),
            Route("/v1/block", self.blocked, methods=["GET"]),
            Route("/v1/block", self.block, methods=["POST"]),
            Route("/v1/block", self.allow, methods=["DELETE"]),
        ]
        handlers: dict[Any, Any] = {
            ApiError: _refused,
            UserError: _mistaken,
            HTTPException: _unrouted,
            Exception: _failed,
        }
        inner: ASGIApp = Starlette(
            routes=routes, exception_handlers=handlers, lifespan=self._lifespan
        )
        if self._options.allowed_origins:
            inner = CORSMiddleware(
                inner,
                allow_origins=[*self._options.allowed_origins],
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["authorization", "content-type"],
            )
        return Guard(inner, self._options, self._metrics, frozenset(one.path for one in routes))

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(self._workers.close)
        await anyio.to_thread.run_sync(self._service.memories.close)

    # Of the server

    async def page(self, request: Request) -> Response:
        page = files("hebblm.serve").joinpath("page.html").read_text(encoding="utf-8")
        policy = (
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        return HTMLResponse(page, headers={"content-security-policy": policy})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": hebblm.__version__})

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self._metrics.page(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        created = 0
        data = [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "hebblm",
                "max_model_len": self._service.window,
            }
            for name in self._service.models()
        ]
        return JSONResponse({"object": "list", "data": data})

    # Tokens

    async def tokenize(self, request: Request) -> Response:
        body = decode(await request.body(), Tokenize)

        def work(gone: threading.Event) -> list[int]:
            return self._service.tokenize(body.prompt, special=body.add_special_tokens)

        ids = await self._workers.run(request, work)
        return JSONResponse(
            {"tokens": ids, "count": len(ids), "max_model_len": self._service.window}
        )

    async def detokenize(self, request: Request) -> Response:
        body = decode(await request.body(), Detokenize)
        return JSONResponse({"prompt": self._service.detokenize(body.tokens)})

    async def tokenizer_info(self, request: Request) -> Response:
        return JSONResponse(self._service.tokenizer_info())

    # Answers

    async def completions(self, request: Request) -> Response:
        body = decode(await request.body(), Completion)
        asked = self._service.completions(body)

        def shape(index: int, text: str, logprobs: Json | None, end: str | None) -> Json:
            return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": end}

        return await self._answer(request, body, body, asked, "cmpl", shape)

    async def chat(self, request: Request) -> Response:
        body = decode(await request.body(), Chat)
        body.check(self._service.limits)
        ids = chat_prompt(self._service.tokenizer, body)
        completion = as_completion(body, ids, self._service.chat_ends())
        asked = self._service.completions(completion)
        key = "delta" if body.stream else "message"

        def shape(index: int, text: str, logprobs: Json | None, end: str | None) -> Json:
            message: Json = {"content": text} if text or not body.stream else {}
            if not body.stream:
                message["role"] = "assistant"
            return {
                "index": index,
                key: message,
                "logprobs": chat_logprobs(logprobs),
                "finish_reason": end,
            }

        return await self._answer(request, body, completion, asked, "chatcmpl", shape)

    async def _answer(
        self,
        request: Request,
        body: Drawing,
        completion: Completion,
        asked: Completions,
        prefix: str,
        shape: Shape,
    ) -> Response:
        kind = "text_completion" if prefix == "cmpl" else "chat.completion"
        model = body.model or self._service.name
        if body.stream:
            await self._workers.run(request, lambda gone: asked.check(completion))
            asked.usage.prompt = 0  # it is counted again while the answer is made
            head = completion_head(
                model, kind if prefix == "cmpl" else "chat.completion.chunk", prefix
            )
            events = self._events(body, completion, asked, head, shape)
            return EventSourceResponse(events, sep="\n", ping=15)

        def work(gone: threading.Event) -> list[Json]:
            pieces = [*pieces_of(asked, completion, gone)]
            answer = []
            for index, parts in groupby(pieces, key=lambda piece: piece.index):
                one = joined([*parts])
                answer.append(shape(index, one["text"], one["logprobs"], one["finish_reason"]))
            return answer

        choices = await self._workers.run(request, work)
        counted(asked.usage, self._count)
        head = completion_head(model, kind, prefix)
        return JSONResponse({**head, "choices": choices, "usage": asked.usage.body})

    async def _events(
        self,
        body: Drawing,
        completion: Completion,
        asked: Completions,
        head: Json,
        shape: Shape,
    ) -> AsyncIterator[Event]:
        """Yield the events of a stream: parts of the answers, their usage if wanted, the end."""
        usage = body.stream_options is not None and body.stream_options.include_usage
        begun: set[int] = set()

        def event(choices: list[Json], **more: Any) -> Event:
            rest = {"usage": None} if usage else {}
            return {"data": json.dumps({**head, "choices": choices, **rest, **more})}

        try:
            async for piece in self._workers.stream(
                lambda gone: pieces_of(asked, completion, gone)
            ):
                choice = shape(piece.index, piece.text, piece.logprobs, piece.end)
                if "delta" in choice and piece.index not in begun:
                    choice["delta"]["role"] = "assistant"
                    begun.add(piece.index)
                yield event([choice])
        except ApiError as error:
            yield {"data": json.dumps(error.body)}
            return
        finally:
            counted(asked.usage, self._count)
        if usage:
            yield event([], usage=asked.usage.body)
        yield {"data": "[DONE]"}

    def _count(self, kind: str, tokens: int) -> None:
        self._metrics.tokens.labels(kind).inc(tokens)

    # Questions of hebblm's own

    async def suggest(self, request: Request) -> Response:
        body = decode(await request.body(), Suggest)
        answer = await self._workers.run(request, lambda gone: self._service.suggest(body, gone))
        words = [
            {
                "word": one.word,
                "insert_text": one.insert_text,
                "probability": one.probability,
                "unadapted": one.unadapted,
                "ends": one.ends,
            }
            for one in answer
        ]
        return JSONResponse(
            {"suggestions": words, "bound": max(answer.bound, 0.0), "exact": answer.exact}
        )

    async def explain(self, request: Request) -> Response:
        body = decode(await request.body(), Suggest)
        answer = await self._workers.run(request, lambda gone: self._service.explain(body, gone))
        words = [
            {
                **one._asdict(),
                "shares": {name: float(share) for name, share in one.shares.items()},
                "entries": [entry._asdict() for entry in one.entries],
            }
            for one in answer
        ]
        return JSONResponse({"explanations": json.loads(json.dumps(words, default=float))})

    async def rank(self, request: Request) -> Response:
        body = decode(await request.body(), Rank)
        answer = await self._workers.run(request, lambda gone: self._service.rank(body, gone))
        return JSONResponse({"ranked": [one._asdict() for one in answer]})

    # Documents

    async def documents(self, request: Request) -> Response:
        memory = await self._opened(request.query_params.get("memory"))
        published = memory.published
        known = [{**document._asdict(), "status": "learned"} for document in published.documents]
        waiting = [{"name": item.name, "status": "waiting"} for item in memory.waiting]
        return JSONResponse(
            {"memory": memory.name, "documents": [*known, *waiting], "entries": published.entries}
        )

    async def add_document(self, request: Request) -> Response:
        body = decode(await request.body(), DocumentBody)
        if len(body.text.encode(errors="replace")) > self._service.limits.document:
            raise ApiError(
                413, f"a document has at most {self._service.limits.document} bytes", "text"
            )
        return await self._learn(await self._opened(body.memory), body.text, body.name, body.wait)

    async def _learn(
        self, memory: NamedMemory, text: str, name: str | None, wait: bool, **more: Any
    ) -> Response:
        name, done = await anyio.to_thread.run_sync(memory.learn, text, name)
        if wait:
            await _ended(done)
        status = "learned" if wait else "waiting"
        return JSONResponse({"name": name, "memory": memory.name, "status": status, **more})

    async def delete_document(self, request: Request) -> Response:
        body = decode(await request.body(), DocumentName)
        memory = await self._opened(body.memory)
        done = await anyio.to_thread.run_sync(memory.forget, body.name)
        if body.wait:
            await _ended(done)
        status = "forgotten" if body.wait else "waiting"
        return JSONResponse({"name": body.name, "memory": memory.name, "status": status})

    async def feedback(self, request: Request) -> Response:
        body = decode(await request.body(), Feedback)
        memory = await self._opened(body.memory)
        if body.taken:
            text = body.prefix.rpartition("\n")[2] + body.suggestion
            return await self._learn(memory, text, None, body.wait, taken=True)
        if body.block:
            word = body.suggestion.strip()
            await anyio.to_thread.run_sync(lambda: memory.block([word], allow=False))
        return JSONResponse({"memory": memory.name, "taken": False, "blocked": body.block})

    async def blocked(self, request: Request) -> Response:
        memory = await self._opened(request.query_params.get("memory"))
        return JSONResponse({"memory": memory.name, "words": list(memory.blocked)})

    async def block(self, request: Request) -> Response:
        return await self._block(request, allow=False)

    async def allow(self, request: Request) -> Response:
        return await self._block(request, allow=True)

    async def _block(self, request: Request, *, allow: bool) -> Response:
        body = decode(await request.body(), BlockBody)
        memory = await self._opened(body.memory)
        await anyio.to_thread.run_sync(lambda: memory.block(body.words, allow=allow))
        return JSONResponse({"memory": memory.name, "words": list(memory.blocked)})

    async def _opened(self, name: str | None) -> NamedMemory:
        """Return a memory; one that is opened takes a while."""
        return await anyio.to_thread.run_sync(self._service.memory, name)


async def _ended(done: Any) -> None:
    """Wait until a document is learned or forgotten."""
    await asyncio.shield(asyncio.wrap_future(done))


def _error(error: ApiError) -> Response:
    headers = {"retry-after": "1"} if error.status == 429 else {}
    return JSONResponse(error.body, error.status, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error(error)


async def _mistaken(request: Request, error: Exception) -> Response:
    return _error(ApiError(400, str(error)))


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "there is nothing here; see docs/serve.md", 405: "another method is needed here"}
    return _error(ApiError(error.status_code, known.get(error.status_code, error.detail)))


async def _failed(request: Request, error: Exception) -> Response:
    """Answer that the server failed; the log has kind and place of the error, and no text."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place, trace = f"{code.co_filename}:{trace.tb_lineno}", trace.tb_next
    log(f"defect: {type(error).__name__} at {place}")
    return _error(ApiError(500, "the server failed on this request; its log says where"))
