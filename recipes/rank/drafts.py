"""What drafts save: tokens a pass and speed of a reader's generate, compared with prompt lookup of
transformers.

A reader reads the beginning of a text; prompts are from the text after it. Each is answered with
and without drafts, one after the other, by the reader and by ``model.generate`` with the same
window. "other" is text that does not repeat: articles, drawn at temperature 1, after documentation
that was read.

    python -m recipes.rank.drafts --output recipes/rank/drafts.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hebblm
from hebblm.io.files import check_writable, write_json
from hebblm.io.provenance import command_line, provenance
from hebblm.reader.reader import Reader
from recipes.rank.texts import text_of

# prompts and temperature
TEXTS = {"docs": ("docs", 0.0), "code": ("code", 0.0), "other": ("articles", 1.0)}
LOOKUP = 10  # tokens that prompt lookup drafts


class Passes:
    """Counts the forward passes of a model, and the tokens that readers draw."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.count = self.tokens = 0
        model.register_forward_pre_hook(self._note)

    def _note(self, *_: object) -> None:
        self.count += 1

    def watch(self, reader: Reader) -> None:
        """Count the tokens of a reader."""
        expected = reader.session.next_log_probs

        def counted(hidden: torch.Tensor, text: Sequence[int]) -> torch.Tensor:
            self.tokens += 1
            return expected(hidden, text)

        reader.session.next_log_probs = counted  # type: ignore[method-assign]


def cut(
    lm: hebblm.LanguageModel, text: str, prompts: str, read: int, count: int, size: int
) -> tuple[str, list[str]]:
    """Beginning of a text, of so many tokens, and prompts from after it, evenly spaced, at
    beginnings of lines.
    """
    assert lm.pieces is not None
    ids = lm.pieces.ids(text[: 8 * read])
    beginning = lm.pieces.join(ids[:read])
    rest = text[len(beginning) :] if prompts == text else prompts
    lines = rest.splitlines(keepends=True)
    starts = np.linspace(1, len(lines) - 20, count).astype(int).tolist()
    rows = [lm.pieces.ids("".join(lines[start : start + 20]))[:size] for start in starts]
    return beginning, [lm.pieces.join(row) for row in rows]


def measured(answers: Sequence[Callable[[], Any]], passes: Passes) -> list[dict[str, Any]]:
    """What each of several ways to answer gives, and costs."""
    found = []
    for answer in answers:
        before, drawn, began, cpu = (
            passes.count,
            passes.tokens,
            time.perf_counter(),
            time.process_time(),
        )
        text = answer()
        seconds, processor = time.perf_counter() - began, time.process_time() - cpu
        tokens = len(text) if isinstance(text, list) else passes.tokens - drawn
        cost = {"passes": passes.count - before, "seconds": seconds, "processor": processor}
        found.append({"answer": text, "tokens": tokens, **cost})
    return found


def totals(
    runs: Sequence[Sequence[dict[str, Any]]], generator: np.random.Generator
) -> dict[str, Any]:
    """Sums over prompts, of answers without and with drafts, and the ratio of times a token with a
    95 % interval.
    """
    plain, drafted = ([run[way] for run in runs] for way in (0, 1))
    times = np.array(
        [[run[way]["processor"] / run[way]["tokens"] for way in (0, 1)] for run in runs]
    )  # (P, 2)
    drawn = generator.integers(0, len(runs), (2000, len(runs)))
    ratios = times[drawn].sum(1)
    low, high = np.quantile(ratios[:, 0] / ratios[:, 1], [0.025, 0.975])
    tokens = [sum(each["tokens"] for each in way) for way in (plain, drafted)]
    # The first pass of an answer reads the prompt, and gives one token as the last one does.
    return {
        "prompts": len(runs),
        "tokens": tokens,
        "passes": [sum(each["passes"] for each in way) for way in (plain, drafted)],
        "tokens_a_pass": tokens[1] / sum(each["passes"] for each in drafted),
        "seconds": [sum(each["seconds"] for each in way) for way in (plain, drafted)],
        "processor_seconds": [sum(each["processor"] for each in way) for way in (plain, drafted)],
        "times_as_fast": float(times[:, 0].sum() / times[:, 1].sum()),
        "interval": [float(low), float(high)],
        "same_answers": sum(
            one["answer"] == other["answer"] for one, other in zip(plain, drafted, strict=True)
        ),
    }


def by_transformers(
    reader: Reader, prompts: Sequence[str], tokens: int, temperature: float, passes: Passes
) -> list[list[dict[str, Any]]]:
    """Answers of the model itself after the window where the reader stands, without prompt lookup
    and with it.

    Prompt lookup over a cache that was filled before gives other tokens, so each answer reads the
    window; what that takes, as an answer of one token measures it, is left out of the times.
    """
    model, pieces = reader.model.model, reader.vocabulary  # type: ignore[attr-defined]
    # of what was read, without the last token
    window = reader.session.base.stream_state()["tokens"]
    runs = []
    for seed, prompt in enumerate(prompts):
        ids = torch.cat([window, reader.session.last, window.new_tensor(pieces.ids(prompt))])[None]  # type: ignore[attr-defined]

        def answer(
            lookup: int | None, most: int = tokens, ids: torch.Tensor = ids, seed: int = seed
        ) -> list[int]:
            torch.manual_seed(seed)
            drawn = (
                {"do_sample": True, "temperature": temperature, "top_k": 0}
                if temperature
                else {"do_sample": False}
            )
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=most,
                min_new_tokens=most,
                prompt_lookup_num_tokens=lookup,
                pad_token_id=0,
                **drawn,
            )
            drawn_ids: list[int] = found[0, ids.shape[1] :].tolist()
            return drawn_ids

        once, *run = measured(
            [lambda: answer(None, 1), lambda: answer(None), lambda: answer(LOOKUP)], passes
        )
        for each in run:
            each.update({name: each[name] - once[name] for name in ("seconds", "processor")})
        runs.append(run)
    return runs


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--methods", default="ngram,best")
    parser.add_argument("--read", type=int, default=3000, help="tokens of the text that are read")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=50, help="of an answer")
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args(argv)
    check_writable(asked.output.parent)
    by = provenance(
        "python -m " + command_line("recipes.rank.drafts", argv), device="cpu", seed=asked.seed
    )
    lm = hebblm.load(asked.model, device="cpu", dtype=asked.dtype, context=asked.context)
    passes = Passes(lm.model.model)  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    for name in asked.texts.split(","):
        of, temperature = TEXTS[name]
        text = text_of("docs" if name == "other" else name)
        prompts = text if of == name else text_of(of)
        beginning, rows = cut(lm, text, prompts, asked.read, asked.prompts, asked.prompt_tokens)
        found[name] = {"temperature": temperature}
        for method in asked.methods.split(","):
            reader = lm.reader(method)
            reader.read(beginning)
            passes.watch(reader)
            runs = []
            for seed, prompt in enumerate(rows):
                options = {
                    "max_new_tokens": asked.tokens,
                    "temperature": temperature,
                    "seed": asked.seed + seed,
                }
                answers = [
                    lambda draft=draft: reader.generate(prompt, draft=draft, **options)  # noqa: B023 - called at once
                    for draft in (False, True)
                ]
                runs.append(measured(answers, passes))
            generator = np.random.default_rng(asked.seed)
            found[name][method] = totals(runs, generator)
            print(name, method, found[name][method], flush=True)
            if method == asked.methods.split(",")[0]:
                generator = np.random.default_rng(asked.seed)
                runs = by_transformers(reader, rows, asked.tokens, temperature, passes)
                found[name]["prompt lookup of transformers"] = totals(runs, generator)
                print(
                    name, "transformers", found[name]["prompt lookup of transformers"], flush=True
                )
            names = ("dtype", "context", "read", "prompt_tokens", "tokens")
            settings = {**{each: getattr(asked, each) for each in names}, "lookup": LOOKUP}
            write_json(
                asked.output,
                {"provenance": by, "model": asked.model, "settings": settings, "texts": found},
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
