"""What Hebb adds on new words by how often they have come, with paired intervals, from the losses
token by token.

    python -m recipes.hebb.pairs results/small/hebb/wt2-to-ptb-best
    recipes/hebb/pairs-wt2-to-ptb.json

A result has no intervals between two methods by occurrence, and its ranges are finer.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hebblm.errors import UserError
from hebblm.io.files import write_json
from hebblm.report import Result
from hebblm.report.result.methods import BASE
from hebblm.report.result.parts import bootstrap_gains, occurrences_so_far
from hebblm.report.result.tokens import FILE_NAME, TokenLosses, check_same_run

PROG = "python -m recipes.hebb.pairs"
SCHEMA = "hebblm-hebb-pairs/1"
PAIRS = (  # a method, what it is compared with
    ("hebb", "mbpa"),
    ("best+mbpa", "best"),
    ("best+hebb", "best"),
    ("best+hebb", "best+mbpa"),
)
OCCURRENCES = {"1st": (0, 1), "2nd": (1, 2), "3rd to 7th": (2, 7), "later": (7, None)}
"""Earlier occurrences of a word from which on a name holds, and from which on it does not."""


def parts_of(tokens: TokenLosses) -> dict[str, NDArray[np.bool_]]:
    """Return the parts (T,) bool of a stream: all, known words, new ones, these by occurrence."""
    seen = occurrences_so_far(tokens.words)
    parts = {"All": np.ones(len(seen), bool), "Known": ~tokens.oov, "New words": tokens.oov}
    for name, (first, end) in OCCURRENCES.items():
        met = seen >= first if end is None else (seen >= first) & (seen < end)
        parts[name] = tokens.oov & met
    return parts


def compared(result: Result, tokens: TokenLosses) -> dict[str, Any]:
    """Return the gain of one method over another, nats, for each pair and part.

    Raises:
        UserError: the losses are not those of the result, or a method of a pair is missing.
    """
    check_same_run(result, tokens)
    parts, found = parts_of(tokens), {}
    for method, other in PAIRS:
        for name in (method, other):
            if name not in tokens.nll:
                raise UserError(f"the run has no losses of {name}; evaluate it as well")
        gains = bootstrap_gains(
            {BASE: tokens.nll[other], method: tokens.nll[method]}, parts, result.bootstrap
        )[method]
        found[f"{method} over {other}"] = [asdict(gain) for gain in gains]
    return found


def main(arguments: list[str]) -> None:
    """Write the file that the second argument names, from the run that the first one names."""
    run, file = map(Path, arguments)
    result = Result.load(run)
    document = {
        "schema": SCHEMA,
        "command": f"{PROG} {shlex.join(arguments)}",
        "run": dict(result.provenance),
        "tokens": result.scenario.tokens,
        "gains": compared(result, TokenLosses.load(run / FILE_NAME, result)),
    }
    write_json(file, document)


if __name__ == "__main__":
    main(sys.argv[1:])
