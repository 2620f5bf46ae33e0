"""Tables of memories on disk, of streams, of the cache's windows and of whole runs, from the
committed JSON.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hebblm.io.files import read_json
from hebblm.report.result.methods import name_of
from recipes.bench.record import BenchResult
from recipes.bench.tables import spread
from recipes.markdown import ROOT

DISK = ROOT / "recipes" / "scale" / "disk.json"
BUILD = DISK.with_name("build.json")
EVAL = ROOT / "recipes" / "results" / "bench" / "eval.json"
DEFAULTS = ROOT / "recipes" / "defaults"
WINDOWS = DEFAULTS / "windows.json"
# the last with sixteen methods
WHOLE = "intra-ptb", "intra-wt2", "wt2-to-ptb", "intra-ptb-sixteen"
MOVING = " of dynamic evaluation"
WORK = {
    "the base reads": ("base",),
    "retrieval": ("retrieval", f"retrieval{MOVING}"),
    "MbPA, for all methods that rest on it": ("mbpa", f"mbpa{MOVING}"),
    "the exact form, on one query in 1,000": ("fast errors mbpa", f"fast errors mbpa{MOVING}"),
    "dynamic evaluation": (f"gradient statistics{MOVING}", f"base{MOVING}", "dynamic"),
    "memory of the training text": (
        "memory of the training text",
        f"memory of the training text{MOVING}",
    ),
}
SIZES, MACHINES = (10**9, 10**11), (1, 8, 64)
ID, DISTANCE, LABEL, NORMALIZER = 8, 4, 8, 4  # bytes


def measured() -> str:
    """Return the costs of a memory on disk by its entries."""
    document = read_json(DISK)
    rows = [
        "| Entries | of them real states | recall of the nearest 200 | resident, GB | on disk, GB "
        "| "
        "ms a query, warm | cold | finished pieces again, s | index and files, s | resident "
        "meanwhile, GB |",
        "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in document["rows"]:
        rows.append(
            f"| {row['entries']:,} | {row['real']:,} | {row['recall']:.3f} | "
            f"{row['resident_bytes'] / 1e9:.2f} | "
            f"{sum(row['bytes'].values()) / 1e9:.2f} | {row['warm_ms']:.2f} | {row['cold_ms']:.1f} "
            "| "
            f"{row['add_seconds']:,.0f} | {row['index_seconds']:,.0f} | "
            f"{row['build_resident_bytes'] / 1e9:.2f} |"
        )
    return "\n".join([*rows, "", _origin("disk", DISK, document)])


def built() -> str:
    """Return in a sentence what ``hebblm-memory build`` takes for a whole training text."""
    document = read_json(BUILD)
    (row,), made, settings = document["rows"], document["provenance"], document["settings"]
    disk, resident = sum(row["bytes"].values()) / 1e9, row["resident_bytes"] / 1e9
    said = (
        f"A whole `build` of the training text of `{settings['corpus']}` by `{settings['model']}`, "
        "its start included, "
        f"with {made['threads']} threads: {row['entries']:,} entries in {row['seconds']:.0f} s, "
        f"{disk:.1f} GB on disk, "
        f"{resident:.1f} GB resident at most."
    )
    return f"{said}\n\n{_origin('build', BUILD, document)}\n"


def paper() -> str:
    """Return the costs of larger memories on several machines, at the rates of the largest one
    measured.
    """
    row = read_json(DISK)["rows"][-1]
    document = read_json(DISK)["settings"]
    entries, k = row["entries"], document["k"]
    size = sum(row["bytes"].values()) / entries  # bytes an entry
    width = int(row["bytes"]["keys.bin"] // (2 * entries))  # D, of fp16 keys
    found = [
        "| Entries | machines | entries of each | on the disk of each, GB | ms a query | sent for "
        "a query, kB |",
        "| --: | --: | --: | --: | --: | --: |",
    ]
    for count in SIZES:
        for machines in MACHINES:
            each = count / machines
            # A query goes to all others; each answers with K codes and distances; then the K
            # winners' entries.
            others = (machines - 1) * (4 * width + k * (ID + DISTANCE))
            sent = others + (k * (2 * width + LABEL + NORMALIZER) if machines > 1 else 0)
            found.append(
                f"| {count:,} | {machines} | {each:,.0f} | {each * size / 1e9:,.0f} | "
                f"{row['warm_ms'] * each / entries:,.0f} | {sent / 1e3:,.0f} |"
            )
    return "\n".join(found)


def streams() -> str:
    """Return the cost of a token by the number of streams that are read side by side."""
    result = BenchResult.load(EVAL)
    [row] = [row for row in result.rows if row.name == "streams"]
    counts = [1, *result.settings["streams"]]
    lines = [
        "| ms a token of | 1 stream | "
        + " | ".join(f"{count} | times as fast" for count in counts[1:])
        + " |",
        "| :-- | --: |" + " --: | --: |" * (len(counts) - 1),
    ]
    for name, title in (
        ("lstm", "the model alone"),
        ("all", f"{len(row.case['methods'])} methods together"),
    ):
        cells = [spread(row.timings[f"{name} 1"].milliseconds())]
        for count in counts[1:]:
            timing = f"{name} {count}"
            cells += [spread(row.timings[timing].milliseconds()), spread(row.faster(timing))]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    parts = {"base": "the base's part", "retrieval": "retrieval's part"}
    parts |= {method: f"{name_of(method)} by itself" for method in row.case["methods"][1:]}
    for part, title in parts.items():
        first, *others = (row.values[f"ms_{part} {count}"] for count in counts)
        cells = [
            f"{first:.2f}",
            *(cell for other in others for cell in (f"{other:.2f}", f"{first / other:.2f}")),
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    case = row.case
    return "\n".join(
        [
            *lines,
            "",
            f"{case['tokens']:,} tokens, a memory of {case['memory']['entries']:,} entries, "
            f"{case['vocabulary']:,} "
            f"classes, an update each {case['batch']} tokens of a stream, "
            f"{result.provenance['threads']} threads. "
            "Medians with extremes of rounds in turn; parts are of one reading, and a method by "
            "itself is all that "
            "it needs.",
            "",
            _origin("eval", EVAL, {"provenance": result.provenance}),
        ]
    )


def whole() -> str:
    """Return where the seconds of the runs for README's table went."""
    documents = [read_json(DEFAULTS / f"result-{name}.json") for name in WHOLE]
    rows = [
        ["Seconds", *(name.removesuffix("-sixteen") for name in WHOLE)],
        ["--", *["--:" for _ in WHOLE]],
    ]
    rows.append(["methods", *(f"{len(each['methods'])}" for each in documents)])
    spent = [Counter[str]() for _ in documents]
    for each, seconds in zip(documents, spent, strict=True):
        for part in each["seconds"]["parts"]:
            seconds[part["name"]] += part["seconds"]
    columns = [
        {what: sum(each[name] for name in names) for what, names in WORK.items()} for each in spent
    ]
    rows += [[what, *(f"{column[what]:,.0f}" for column in columns)] for what in WORK]
    totals = [each["seconds"]["total"] for each in documents]
    rest = [total - sum(column.values()) for total, column in zip(totals, columns, strict=True)]
    rows.append(["all else", *(f"{seconds:,.0f}" for seconds in rest)])
    rows.append(["the whole run", *(f"{total:,.0f}" for total in totals)])
    rows.append(["tokens", *(f"{each['scenario']['tokens']:,}" for each in documents)])
    rows.append(["threads", *(f"{each['provenance']['threads']}" for each in documents)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def windows() -> str:
    """Return the cache's loss by window on every text, and the most that each window loses to the
    best.
    """
    document = read_json(WINDOWS)
    texts: dict[str, dict[str, float]] = document["nll"]
    sizes = list(document["largest_loss"])
    rows = [
        "| Text | base | " + " | ".join(f"{int(size):,}" for size in sizes) + " |",
        "| :-- |" + " --: |" * (len(sizes) + 1),
    ]
    for name, losses in texts.items():
        best = min(sizes, key=lambda size: losses[size])
        cells = [
            f"**{losses[size]:.3f}**" if size == best else f"{losses[size]:.3f}" for size in sizes
        ]
        rows.append(f"| {name} | {losses['base']:.3f} | " + " | ".join(cells) + " |")
    largest = " | ".join(f"{document['largest_loss'][size]:.3f}" for size in sizes)
    rows.append(f"| lost to the best, at most | - | {largest} |")
    return "\n".join([*rows, "", _origin("windows", WINDOWS, document)])


def _origin(name: str, path: Any, document: dict[str, Any]) -> str:
    """Return the origin of a measurement, with a link to it from a page of docs."""
    by = document["provenance"]
    where = f"../{path.relative_to(ROOT).as_posix()}"
    return (
        f"- [{name}]({where}), `{by['command']}`, commit `{str(by['commit'])[:12]}`, seed "
        f"{by['seed']}"
    )
