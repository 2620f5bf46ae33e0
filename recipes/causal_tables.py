"""The tables of recipes/huggingface/README.md: a small Llama under every method, large output
layers.

Usage: python -m recipes.causal_tables RESULTS FOLDER, which copies what hf_results.sh made, to
recipes/huggingface.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from hebblm.adapt.methods import DEFAULT_METHODS, DYNAMIC, PUBLISHED
from hebblm.io.files import read_json
from hebblm.report import Result
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.numbers import Cell
from hebblm.report.tables.facts import scenario_line
from hebblm.report.tables.table import Column, Table
from recipes.bench.record import BenchResult
from recipes.bench.tables import origin
from recipes.markdown import ROOT, body, origin_of

CAUSAL = Path(__file__).with_name("huggingface")
TEXTS = ("wt2", "ptb", "numpy")
KINDS = (("llama", ""), ("llama", "-tuned"), ("llama", "-ffn-input"), ("awd", ""))
REAL = [ROOT / "recipes" / "real" / f"docs-{window}.json" for window in (1024, 4096)]
FEW = (BASE, DYNAMIC, "cache", "knn", "best", "dynamic+best")  # for README
TRANSFORMER = [CAUSAL / f"llama-{name}.json" for name in TEXTS]


def _rows(
    results: Collection[Result],
    methods: Iterable[str],
    cells: Callable[[Result, str], tuple[Cell, Cell]],
) -> tuple[tuple[Cell, ...], ...]:
    """Return a row for each method, with its cells of each result."""
    return tuple(
        (name_of(name), *(cell for result in results for cell in cells(result, name)))
        for name in methods
    )


def _origins(found: Mapping[Path, Result], short: bool) -> str:
    """Return the origin of some results; in short, their places and commits."""
    if not short:
        return "\n".join(
            f"- {origin_of(path.stem, path, result, '../')}" for path, result in found.items()
        )
    made = ", ".join(f"[{path.stem}](../{path.relative_to(ROOT).as_posix()})" for path in found)
    commits = sorted({str(result.provenance["commit"])[:12] for result in found.values()})
    return f"- {made}, commit `{'`, `'.join(commits)}`"


def real(short: bool = False) -> str:
    """Return the gains of a pretrained model on pages of docs, in a short and in a long window."""
    found = {path: Result.load(path) for path in REAL}
    columns = (
        Column("Method"),
        *(
            Column(f"window of {result.model['context']:,}: {what}", kind, best, decimals=3)
            for result in found.values()
            for what, kind, best in (
                ("bits a byte", "nll", "min"),
                ("time, base = 1", "amount", None),
            )
        ),
    )

    def cells(result: Result, name: str) -> tuple[Cell, Cell]:
        method = result.methods[name]
        return method.bits_per_byte, result.methods[
            BASE
        ].tokens_per_second / method.tokens_per_second

    methods = next(iter(found.values())).methods
    rows = _rows(found.values(), [name for name in methods if name in FEW or not short], cells)
    lines = _origins(found, short)
    return f"{body(Table.of_cells('real', '', columns, rows))}\n{lines}\n"


def transformer(short: bool = False) -> str:
    """Return the gains of the default methods for the small Llama that ships, on three texts."""
    found = {path: Result.load(path) for path in TRANSFORMER}
    columns = (
        Column("Method"),
        *(
            Column(f"{result.scenario.target}, {what}", kind, best, decimals=decimals)
            for result in found.values()
            for what, kind, best, decimals in (
                ("bits a byte", "nll", "min", 3),
                ("nats a word gained", "nll", None, 3),
            )
        ),
    )

    def cells(result: Result, name: str) -> tuple[Cell, Cell]:
        method = result.methods[name]
        return method.bits_per_byte, None if name == BASE else result.methods[BASE].nll - method.nll

    rows = _rows(found.values(), DEFAULT_METHODS, cells)
    lines = _origins(found, short)
    if not short:
        lines += "".join(f"\n- {scenario_line(result)}" for result in found.values())
    return f"{body(Table.of_cells('transformer', '', columns, rows))}\n{lines}\n"


def transformer_tuned() -> str:
    """Return the effect of values found on validation text on the Llama that ships, where they were
    found.
    """
    found = {name: CAUSAL / f"llama-{name}-tuned.json" for name in TEXTS}
    results = {
        name: (path, Result.load(path), Result.load(CAUSAL / f"llama-{name}.json"))
        for name, path in found.items()
        if path.is_file()
    }
    columns = (
        Column("Method"),
        *(
            column
            for name in results
            for column in (
                Column(f"{name}, bits a byte", "nll", "min", decimals=3),
                Column(f"{name}, nats a word over the values above", "signed", decimals=3),
            )
        ),
    )
    rows = []
    for name in PUBLISHED:
        row: dict[str, Cell] = {"Method": name_of(name)}
        for text, (_, result, usual) in results.items():
            method = result.methods[name]
            row[f"{text}, bits a byte"] = method.bits_per_byte
            if name != BASE:
                gain = usual.methods[name].nll - method.nll
                row[f"{text}, nats a word over the values above"] = gain
        rows.append(row)
    lines = "\n".join(
        f"- {origin_of(path.stem, path, result, '../')}" for path, result, _ in results.values()
    )
    return f"{body(Table('transformer-tuned', '', columns, rows))}\n{lines}\n"


def rates() -> str:
    """Return the loss on validation text by rate and decay of dynamic evaluation, of every text
    that was tuned on.
    """
    tried = {
        name: read_json(path) for name in TEXTS if (path := CAUSAL / f"tuned-{name}.json").is_file()
    }
    found = {
        name: {
            (p["dynamic.lr"], p["dynamic.decay"]): p["nll"] for p in document["tried"]["dynamic"]
        }
        for name, document in tried.items()
    }
    every = sorted({point for losses in found.values() for point in losses})
    columns = (
        Column("Rate"),
        Column("decay"),
        *(Column(f"{name}, nats a piece", "nll", "min", decimals=3) for name in found),
    )
    unadapted: dict[str, Cell] = {"Rate": "0, unadapted"}
    for name in found:
        unadapted[f"{name}, nats a piece"] = tried[name]["nll"][BASE]
    rows = [unadapted]
    for rate, decay in every:
        row: dict[str, Cell] = {"Rate": f"{rate:g}", "decay": f"{decay:g}"}
        for name, losses in found.items():
            row[f"{name}, nats a piece"] = losses.get((rate, decay))
        rows.append(row)
    lines = "\n".join(
        f"- [tuned-{name}](../recipes/huggingface/tuned-{name}.json), "
        f"`{document['provenance']['command']}`, "
        f"commit `{document['provenance']['commit'][:12]}`"
        for name, document in tried.items()
    )
    return f"{body(Table('rates', '', columns, rows))}\n{lines}\n"


def without_training_text() -> str:
    """Return the gains of dynamic evaluation without a training text, and its cost."""
    documents = {
        path.name: read_json(path) for path in sorted((CAUSAL.parent / "dynamic").glob("*.json"))
    }
    columns = (
        *map(Column, ("Model", "text", "learning weights", "pieces")),
        Column("base, nats a piece", "nll", decimals=3),
        Column("gain", "nll", decimals=3),
        Column("least gain after 500 pieces", "nll", decimals=3),
        Column("time, of the base's", "nll", decimals=1),
    )
    rows = []
    for document in documents.values():
        for run in document["runs"]:
            rows.append(
                {
                    "Model": run["model"],
                    "text": run["text"],
                    "learning weights": f"{run['weights']:,} ({run['learns']})",
                    "pieces": f"{run['pieces']:,}",
                    "base, nats a piece": run["base_nats"],
                    "gain": run["gain_nats"],
                    "least gain after 500 pieces": -run["worst_behind"],
                    "time, of the base's": run["cpu_seconds"] / run["base"]["cpu_seconds"],
                }
            )
    lines = "\n".join(
        f"- [{name}](../recipes/dynamic/{name}), `{document['provenance']['command']}`, "
        f"commit `{document['provenance']['commit'][:12]}`"
        for name, document in documents.items()
    )
    return f"{body(Table('without-training-text', '', columns, rows))}\n{lines}\n"


def beside_words() -> str:
    """Return bits per byte of the Llama next to those of the AWD-LSTM of the same training text, on
    the same words.
    """
    found = {name: CAUSAL / f"awd-{name}.json" for name in TEXTS}
    results = {
        name: (Result.load(CAUSAL / f"llama-{name}.json"), Result.load(path))
        for name, path in found.items()
        if path.is_file()
    }
    columns = (
        Column("Method"),
        *(
            Column(f"{name}, {whose}", "nll", decimals=3)
            for name in results
            for whose in ("Llama", "AWD-LSTM at least", "and at most")
        ),
    )

    rows = []
    for method in PUBLISHED:
        row: dict[str, Cell] = {"Method": name_of(method)}
        for name, (of_llama, of_words) in results.items():
            row[f"{name}, Llama"] = of_llama.methods[method].bits_per_byte
            bits = of_words.methods[method].bits_per_byte
            extra = of_words.scenario.extra
            text = extra["text"]
            if bits is not None:
                low = bits - 8 * extra.get("spelled_bytes", 0) / text["bytes"]
                row[f"{name}, AWD-LSTM at least"] = low
                row[f"{name}, and at most"] = low + 8 * text["spelling"] / text["bytes"]
        rows.append(row)
    lines = []
    for name, (_, words) in results.items():
        text, path = words.scenario.extra["text"], found[name]
        share = 100 * text["unspelled"] / text["bytes"]
        lines.append(
            f"- {scenario_line(words)}; {text['bytes']:,} bytes, {share:.1f} % of them in words "
            "that the "
            f"model does not spell: {origin_of(path.stem, path, words, '../')}"
        )
    return body(Table("beside-words", "", columns, rows)) + "\n" + "\n".join(lines) + "\n"


def keys() -> str:
    """Return the gain of memories of the last feed-forward layer's inputs over the usual ones."""
    found = {name: CAUSAL / f"llama-{name}-ffn-input.json" for name in TEXTS}
    results = {
        name: (Result.load(CAUSAL / f"llama-{name}.json"), Result.load(path))
        for name, path in found.items()
    }
    columns = (
        Column("Method"),
        *(
            Column(f"{name}, {what}", kind, decimals=decimals)
            for name in results
            for what, kind, decimals in (("`last`", "nll", 3), ("gain of `ffn-input`", "signed", 4))
        ),
    )
    rows = tuple(
        (
            name_of(name),
            *(
                value
                for last, other in results.values()
                for value in (
                    last.methods[name].nll,
                    last.methods[name].nll - other.methods[name].nll,
                )
            ),
        )
        for name in ("knn", "mixture")
    )
    lines = "\n".join(
        f"- {origin_of(found[name].stem, found[name], other, '../')}"
        for name, (_, other) in results.items()
    )
    return f"{body(Table.of_cells('keys', '', columns, rows))}\n{lines}\n".replace("\\`", "`")


def heads() -> str:
    """Return the cost of adaptation on output layers of the sizes of large models, next to the
    layer's own product.
    """
    measured = BenchResult.load(CAUSAL / "heads.json")
    columns = (
        Column("Output layer of"),
        Column("V", "count"),
        Column("D", "count"),
        Column("its product, ms a token", "nll", decimals=2),
        *(Column(f"{form}, times that", "amount") for form in ("MbPA", "Hebb", "Mixture")),
        Column("its weights, GB", "nll", decimals=2),
        Column("keys of a token's neighbours, MB", "nll", decimals=2),
    )
    rows = tuple(
        (
            row.case["head"],
            row.case["vocabulary"],
            row.case["dim"],
            row.timings["head"].milliseconds().median,
            *(row.values[f"{form}_over_head"] for form in ("fast_mbpa", "fast_hebb", "mixture")),
            row.values["head_bytes"] / 1e9,
            row.values["key_bytes_per_token"] / 1e6,
        )
        for row in measured.rows
        if row.name == "large_head"
    )
    table = body(Table.of_cells("heads", "", columns, rows, (origin(measured),)))
    return f"{table}\n[heads](../recipes/huggingface/heads.json)\n"


def collect(results: Path, folder: Path) -> None:
    places = {"heads": "heads.json"}
    for text in TEXTS:
        places |= {
            f"{kind}-{text}{more}": f"{kind}-{text}{more}/result.json" for kind, more in KINDS
        }
        places[f"tuned-{text}"] = f"tuned-llama-{text}/tuned.json"
    for name, place in places.items():
        if (results / place).is_file():
            shutil.copy(results / place, folder / f"{name}.json")


if __name__ == "__main__":
    collect(Path(sys.argv[1]), Path(sys.argv[2]))
