"""Names of learned shares as version 0.2.0 spelled them: by the printed form of the rule that learns them."""

from __future__ import annotations

import ast

_NAMES = {
    "Unadapted": "base",
    "Cache": "cache",
    "KnnLM": "knn",
    "Mixture": "mixture",
    "LogitSum": "mixture",
    "Mbpa": "mbpa",
}


def present_name(name: str) -> str:
    """Return the present name of a saved share; one that is no printed rule, or of none that was, stays."""
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
    """A dataclass as it was printed."""

    def __init__(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError("not a dataclass")
        self.kind = node.func.id
        self.fields = {word.arg: word.value for word in node.keywords}

    def value(self, field: str) -> object:
        """Return the value of a field that is a literal."""
        return ast.literal_eval(self.fields[field])

    @property
    def name(self) -> str:
        """Name of the rule."""
        if self.kind == "Mixed":
            rules = self.fields["rules"]
            names = [_Printed(rule).name for rule in getattr(rules, "elts", ())]
            return "+".join(dict.fromkeys(name for name in names if name != "base"))
        if self.kind == "Hebb":
            variant = self.value("variant")
            return "hebb-learned" if self.value("steps") else f"hebb-{variant}" if variant else "hebb"
        return _NAMES[self.kind]
