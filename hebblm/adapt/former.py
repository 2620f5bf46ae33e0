"""Names of earlier versions and their present names: settings, methods, keywords and learned
shares.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

GONE = {
    "mixture-gated": "best",
    "hebb-learned": "hebb",
    "mixture+hebb-learned": "mixture+hebb",
    "mixture+cache": "best",
    "dynamic+mixture": "dynamic+best",
    "dynamic+mixture+hebb": "dynamic+best",
    "dynamic+mixture+cache": "dynamic+best",
    "mbpa-guarded": "mbpa",
}
"""The method to use instead, by the name of a removed method."""
RENAMED = {"mbpa.method": "mbpa.solver", "mbpa.rate": "mbpa.lr_units", "best.rate": "best.lr"}
"""Settings by their names in version 0.2.0, which work for one more release."""
_SECTIONS = {name.replace("+", "_").replace("-", "_"): name for name in GONE}


def gone_setting(name: str) -> str | None:
    """Return the message about a removed setting, by its dotted name; None for any other name."""
    section = name.partition(".")[0].replace("+", "_")
    if section == "tempered":
        return f"setting {name} is gone, since methods have no temperature any more; leave it out"
    method = _SECTIONS.get(section)
    return method and f"setting {name} is gone with {method}; leave it out, and use {GONE[method]}"


def present_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted name from a file of any version, under present names and without
    removed settings.
    """
    return {
        RENAMED.get(name, name): value
        for name, value in values.items()
        if gone_setting(name) is None
    }


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function accept keywords of version 0.2.0 for one more release, and print their new
    names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def taking(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in names.keys() & kwargs.keys():
                said = (
                    f"{function.__name__}: {name} is now {names[name]}; the old name goes with the "
                    "next release"
                )
                warnings.warn(said, FutureWarning, stacklevel=2)
                kwargs[names[name]] = kwargs.pop(name)
            return function(*args, **kwargs)

        return taking

    return decorate


_RULES = {
    "Unadapted": "base",
    "Cache": "cache",
    "KnnLM": "knn",
    "Mixture": "mixture",
    "LogitSum": "mixture",
    "Mbpa": "mbpa",
}


def present_name(name: str) -> str:
    """Return the present name of a share that version 0.2.0 saved under its printed rule; other
    names stay.
    """
    if "(" not in name:
        return name
    try:
        rule = _Printed(ast.parse(name, mode="eval").body)
        if rule.kind == "MbpaWeight":
            return "weight of mbpa/1"
        if rule.kind == "Best":
            return f"gate of {_Printed(rule.fields['config']).value('parts')}/1"
        return f"shares of {rule.name}/1"
    except (SyntaxError, ValueError, KeyError):
        return name


class _Printed:
    def __init__(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError("not a dataclass")
        self.kind = node.func.id
        self.fields = {word.arg: word.value for word in node.keywords}

    def value(self, field: str) -> object:
        return ast.literal_eval(self.fields[field])

    @property
    def name(self) -> str:
        if self.kind == "Mixed":
            rules = self.fields["rules"]
            names = [_Printed(rule).name for rule in getattr(rules, "elts", ())]
            return "+".join(dict.fromkeys(name for name in names if name != "base"))
        if self.kind == "Hebb":
            variant = self.value("variant")
            return (
                "hebb-learned" if self.value("steps") else f"hebb-{variant}" if variant else "hebb"
            )
        return _RULES[self.kind]
