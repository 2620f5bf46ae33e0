"""Whether lm-evaluation-harness gets the same log-likelihoods from the server, from the model in
process, and for the base from its own ``hf``.

Three tasks are made of these pages: the last word of a sentence, which sentence follows, and whole
paragraphs. Each model is run by the harness's command, and the answers to each question are
compared.

Usage: python -m recipes.harness [--model llama-wt2-small] [--items 30] [--json FILE]
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import hebblm
from hebblm.cli.common import options, print_line
from hebblm.errors import UserError
from hebblm.io.files import check_writable, write_json
from hebblm.io.provenance import provenance
from hebblm.models.catalog import model_folder
from recipes.bench.machine import cpu_name
from recipes.bench.servers import running
from recipes.markdown import ROOT

PROG = "python -m recipes.harness"
ALLOWED = 1e-4  # nats between two log-likelihoods
LEARNED = "docs/index.md"
SERVED = "served"
TASKS: dict[str, dict[str, Any]] = {
    "last_word": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{before}}",
        "doc_to_target": " {{word}}",
        "metric_list": [{"metric": "acc"}],
    },
    "next_sentence": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{before}}",
        "doc_to_choice": "{{sentences}}",
        "doc_to_target": "{{right}}",
        "metric_list": [{"metric": "acc"}],
    },
    "paragraphs": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
}
"""Tasks of the harness without their data."""


@dataclass(frozen=True, kw_only=True)
class HarnessConfig:
    """Options of the comparison.

    Args:
        model: a causal language model of transformers: a shipped model's name, or a folder.
        items: questions of each task.
        context: tokens of the window.
        json: file for the result.
    """

    model: Path = Path("llama-wt2-small")
    items: int = 30
    context: int = 256
    json: Path | None = None

    def __post_init__(self) -> None:
        if self.items < 1:
            raise UserError(f"items = {self.items} must be at least 1")


@options(PROG, HarnessConfig, f"{PROG} --items 30 --json recipes/harness.json")
def main(config: HarnessConfig, argv: list[str]) -> None:
    """Compare log-likelihoods that lm-evaluation-harness gets in three ways."""
    if config.json is not None:
        check_writable(config.json.parent)
    document = compared(config, f"{PROG} {shlex.join(argv)}".strip())
    for name, row in document["differences"].items():
        print_line(f"{name}: {row['answers']} answers, at most {row['nats']:.1e} nats apart")
    if config.json is not None:
        write_json(config.json, document)
    for name, row in document["differences"].items():
        if row["nats"] > ALLOWED:
            raise UserError(f"{name}: log-likelihoods differ by more than {ALLOWED} nats")


def compared(config: HarnessConfig, command: str) -> dict[str, Any]:
    """Return the differences of log-likelihoods, and what made them."""
    folder = model_folder(config.model)
    if folder is None:
        raise UserError(f"model = {config.model} is not in a folder; name a shipped model")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_tasks(root / "tasks", config.items)
        found = _answers(root, folder, config.context)
    pairs = {
        "best: server and process": ("server best", "process best"),
        "base: server and process": ("server base", "process base"),
        "base: server and hf": ("server base", "hf"),
    }
    differences = {}
    for title, (one, other) in pairs.items():
        for task in TASKS:
            differences[f"{title}, {task}"] = difference(found[one][task], found[other][task])
    return {
        "provenance": {**provenance(command, device="cpu", seed=0), "cpu": cpu_name()},
        "settings": {"model": config.model.name, "items": config.items, "context": config.context},
        "differences": differences,
    }


def _answers(root: Path, folder: Path, context: int) -> dict[str, dict[str, list[float]]]:
    """Return the log-likelihoods of each task by each model."""
    reader = hebblm.load(folder, device="cpu", context=context).reader("best")
    reader.read((ROOT / LEARNED).read_text(encoding="utf-8"), name=LEARNED)
    reader.begin()
    reader.save(root / "memory")
    shutil.copytree(root / "memory", root / "served")
    process = f"pretrained={folder},context={context},dtype=float32"
    found = {
        "process best": _run(root, "hebblm", f"{process},memory={root / 'memory'}"),
        "process base": _run(root, "hebblm", f"{process},method=base"),
        "hf": _run(root, "hf", f"pretrained={folder},dtype=float32,max_length={context}"),
    }
    serve = ["serve", str(folder), "--memory", str(root / "served"), "--context", str(context)]
    serve += ["--name", SERVED, "--device", "cpu", "--dtype", "float32", "--port", "{port}"]
    with running([sys.executable, "-m", "hebblm.cli.main", *serve], 1) as server:
        for name, model in (("server best", SERVED), ("server base", f"{SERVED}:base")):
            given = f"model={model},base_url={server.address}/v1/completions"
            found[name] = _run(root, "local-completions", f"{given},max_length={context + 1}")
    return found


def _run(root: Path, model: str, arguments: str) -> dict[str, list[float]]:
    """Run the harness's command on all tasks; return the log-likelihoods that it got, in order.

    Raises:
        UserError: it fails.
    """
    module = "hebblm.integrations.lm_eval" if model == "hebblm" else "lm_eval"
    words = ["-m", module, "--model", model, "--model_args", arguments, "--device", "cpu"]
    words += ["--tasks", ",".join(TASKS), "--include_path", str(root / "tasks"), "--log_samples"]
    with tempfile.TemporaryDirectory(dir=root) as out:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{root / 'data'}"}
        done = subprocess.run(
            [sys.executable, *words, "--output_path", out],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            told = done.stderr.strip().splitlines()[-1:]
            raise UserError(f"lm_eval --model {model} ends with {done.returncode}: {told}")
        return {task: _logged(Path(out), task) for task in TASKS}


def _logged(out: Path, task: str) -> list[float]:
    """Return the log-likelihoods of a task that the harness wrote for each question."""
    (path,) = out.rglob(f"samples_{task}_*.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    values = []
    for row in sorted(rows, key=lambda row: int(row["doc_id"])):
        for answer in row["resps"]:
            one = answer[0]
            values.append(float(one[0] if isinstance(one, list) else one))
    return values


def difference(one: list[float], other: list[float]) -> dict[str, Any]:
    """Return how many answers were compared, and the largest difference, nats."""
    apart = [abs(left - right) for left, right in zip(one, other, strict=True)]
    return {"answers": len(apart), "nats": max(apart)}


def write_tasks(folder: Path, items: int) -> None:
    """Write the three tasks with their questions, taken from the pages of docs."""
    folder.mkdir(parents=True)
    sentences, paragraphs = _text()
    if len(sentences) < items + 3 or len(paragraphs) < items:
        raise UserError(f"items = {items} is more than the pages have; choose fewer")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TASKS}
    for number in range(items):
        before, _, word = sentences[number].rpartition(" ")
        rows["last_word"].append({"before": before, "word": word})
        others = [sentences[-1 - (number + step) % len(sentences)] for step in (0, 7)]
        choices = [f" {one}" for one in others]
        right = number % 3
        choices.insert(right, f" {sentences[number + 1]}")
        rows["next_sentence"].append(
            {"before": sentences[number], "sentences": choices, "right": right}
        )
        rows["paragraphs"].append({"text": paragraphs[number]})
    for name, task in TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows[name]), encoding="utf-8")
        whole = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            **task,
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")


def _text() -> tuple[list[str], list[str]]:
    """Return sentences and paragraphs of the pages, without code, tables and lists."""
    sentences, paragraphs = [], []
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
        for part in text.split("\n\n"):
            plain = " ".join(part.split())
            if not plain or plain[0] in "#|<-!" or len(plain.split()) > 70:
                continue
            paragraphs.append(plain)
            cut = re.split(r"(?<=[.!?]) +", plain)
            sentences += [one for one in cut if 6 <= len(one.split()) <= 25]
    return sentences, paragraphs


if __name__ == "__main__":
    sys.exit(main())
