"""Tables of the referee's findings: it prints them and writes them into
recipes/refereed/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hebblm.io.files import read_json
from hebblm.report.result.methods import name_of
from hebblm.report.tables.table import Column, Table
from recipes.markdown import ROOT, body

FOUND = ROOT / "recipes" / "refereed"
COLUMNS = (
    Column("Method"),
    Column("code, bytes"),
    Column("code, bits a byte"),
    Column("evaluation, bits a byte"),
    Column("code, longer by"),
    Column("sums miss 1 by"),
    Column("decoded"),
)


def verdicts(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the verdicts on some methods, by name, as Markdown."""
    rows = tuple(
        (
            name_of(name),
            f"{found['code_bytes']:,}",
            f"{found['code_bits_per_byte']:.4f}",
            f"{found['evaluated_bits_per_byte']:.4f}",
            f"{100 * found['difference']:+.3f} %",
            f"{found['off']:.0e}",
            "the text" if found["decoded"] else "another text",
        )
        for name, found in methods.items()
    )
    return body(Table.of_cells("referee", "", COLUMNS, rows))


def referee() -> str:
    """Return the verdicts of every committed run."""
    parts = []
    for path in sorted(FOUND.glob("*.json")):
        document = read_json(path)
        text, by = document["text"], document["provenance"]
        tokens = next(iter(document["methods"].values()))["tokens"]
        parts.append(
            f"The model of {text['source']} reads {tokens:,} tokens of {text['target']} "
            f"{text['split']}, "
            f"{text['bytes']:,} bytes, {text['unk_tokens']:,} of the tokens `<unk>`: "
            f"[what was found](../{path.relative_to(ROOT).as_posix()}) by `{by['command']}`, "
            "commit "
            f"`{by['commit'][:12]}`.\n\n{verdicts(document['methods'])}"
        )
    return "\n".join(parts)
