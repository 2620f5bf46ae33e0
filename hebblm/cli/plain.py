"""Options from files: YAML or JSON of plain values, small and shallow enough to read at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jsonargparse import ActionConfigFile, get_loader, set_loader  # type: ignore[attr-defined]

from hebblm.errors import MOST, UserError
from hebblm.io.files import read_bytes

MAX_CHARACTERS = 1 << 20  # bytes
DEEPEST = 20  # mappings and lists within each other
CODE = ("class_path", "init_args", "dict_kwargs")  # keys that would make the parser import a class
REFUSED = (yaml.YAMLError, ValueError, RecursionError)
_LOAD = get_loader("yaml")


def load(text: str, **options: Any) -> Any:
    """Parse a text of plain values, without anchors and aliases."""
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"more than {MAX_CHARACTERS:,} characters")
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if getattr(event, "anchor", None) is not None:
            raise yaml.YAMLError("anchors and aliases are not read")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError("tags are not read")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > DEEPEST:
            raise yaml.YAMLError(f"nested more than {DEEPEST} deep")
    _check_keys(yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    return _LOAD(text, **options)


def _check_keys(node: Any) -> None:
    """Refuse a mapping with a repeated key, or with ``<<``, which includes another mapping."""
    if isinstance(node, yaml.MappingNode):
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        line = node.start_mark.line + 1
        if len(set(keys)) < len(keys):
            raise yaml.YAMLError(f"a key stands twice from line {line} on")
        if any(tag.endswith(":merge") for tag, _ in keys):
            raise yaml.YAMLError(f"<< from line {line} on is not read")
    for item in node.value if isinstance(node, yaml.CollectionNode) else ():
        for child in item if isinstance(item, tuple) else (item,):
            _check_keys(child)


set_loader("yaml", load, REFUSED)


class ConfigFile(ActionConfigFile):
    """The option that names a file of options; messages never show the file's content."""

    def __call__(
        self, parser: Any, cfg: Any, values: Any, option_string: str | None = None
    ) -> None:
        """Check the file, or the JSON object in its place, before the parser reads it."""
        inline = values.lstrip().startswith("{")
        source = "the text of --config" if inline else values
        try:
            text = values if inline else read_bytes(Path(values), MAX_CHARACTERS).decode("utf-8")
            options = load(text)
        except REFUSED as error:
            if isinstance(error, UserError):
                raise
            mark = getattr(error, "problem_mark", None)
            where = f"line {mark.line + 1} cannot be read" if mark else str(error).partition(":")[0]
            raise UserError(
                f"{source} is not YAML or JSON of plain values ({where}); write name: value"
            ) from error
        if not isinstance(options, dict):
            raise UserError(f"{source} holds no options; write name: value")
        for key in _keys(options):
            if key in CODE or (isinstance(key, str) and key.partition(".")[0] == "config"):
                raise UserError(
                    f"{source} has the key {key!r}, which is not an option; leave it out"
                )
        several = {action.dest for action in parser._actions if action.nargs in ("+", "*")}
        for key, value in options.items():
            if not isinstance(key, str):
                raise UserError(
                    f"{source} has the key {key!r}, which is not an option; write name: value"
                )
            check_values(f"{source}: {key}", value)
            if key.replace("-", "_") in several and not isinstance(value, list):
                raise UserError(f"{source}: {key} takes any number of values; write a list")
        super().__call__(parser, cfg, values, option_string)  # type: ignore[no-untyped-call]


def _keys(value: Any) -> Iterator[Any]:
    """Yield the keys of mappings, within lists and each other too."""
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        yield from value
        inner = value.values()
    elif isinstance(value, (list, set)):
        inner = value
    for item in inner:
        yield from _keys(item)


def check_values(name: str, value: Any) -> None:
    """Refuse values that no option takes, also within lists and mappings."""
    if "\0" in name or (isinstance(value, (str, Path)) and "\0" in str(value)):
        raise UserError(f"{name} holds a NUL character; leave it out".replace("\0", "?"))
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_values(f"{name}.{key}", item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            check_values(name, item)
    elif isinstance(value, float) and not abs(value) < float("inf"):
        raise UserError(f"{name} = {value} must be a finite number")
    elif isinstance(value, int) and abs(value) > MOST:
        raise UserError(f"{name} is too large a number; choose one below 2^53")
    elif name.endswith(("seed", "seeds")) and isinstance(value, int) and value < 0:
        raise UserError(f"{name} = {value} must be at least 0")
