"""Settings of the methods: sections whose types give their ranges, their changes, and all settings
of a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from hebblm.errors import MOST, UserError
from hebblm.runtime.spelling import did_you_mean

ONLINE: Literal["online"] = "online"
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Decay = Annotated[float, Meta(ge=0, lt=1)]
Count = Annotated[int, Meta(ge=1)]
Steps = Annotated[int, Meta(ge=0, le=10_000)]  # of a query, few enough that it ends
# A number, or learned from the tokens already scored:
Share = Fraction | Literal["online"]  # of one of two distributions
# of weights; online mixes three values with learned shares
Sharpness = NonNegative | Literal["online"]
Temperature = Positive | Literal["online"]  # the inverse of a sharpness
Weight = NonNegative | Literal["online"]  # of a change
T = TypeVar("T")
S = TypeVar("S", bound="Section")


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the settings, whose values are set as ``section.name``."""

    section: ClassVar[str]


@dataclass(frozen=True, slots=True, init=False)
class MethodSettings:
    """Settings of the methods, a section each: ``settings[MbpaConfig].lr``; the last of two of a
    kind counts.
    """

    sections: tuple[Section, ...]  # by name, only those that differ from their default values

    def __init__(self, *sections: Section) -> None:
        given = {type(section): section for section in sections}
        kept = (section for kind, section in given.items() if section != kind())
        object.__setattr__(
            self, "sections", tuple(sorted(kept, key=lambda section: section.section))
        )

    def __getitem__(self, kind: type[S]) -> S:
        return next((section for section in self.sections if type(section) is kind), None) or kind()

    def replaced(self, *sections: Section) -> MethodSettings:
        return MethodSettings(*self.sections, *sections)


def changed(name: str, values: T, changes: Mapping[str, Any]) -> T:
    """Return section ``name`` with some of its values replaced; text is converted to the type of
    its field, that of several values at its commas.

    Several are replaced at once, since some values only work together. The settings of a whole run
    may have no name.
    """
    kind = type(values)
    hints = get_type_hints(kind, include_extras=True)
    given = {key: _unpacked(scalar(value), hints[key]) for key, value in changes.items()}
    whole = {**asdict(values), **given}  # type: ignore[call-overload]
    try:
        new = msgspec.convert(whole, kind, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, UserError):  # of values that do not work together
            raise error.__cause__ from None
        key = re.findall(r"`\$\.(\w+)", str(error))[0]
        raise UserError(_refusal(f"{name}.{key}", scalar(changes.get(key)), hints[key])) from None
    for key in given:
        if not _finite(getattr(new, key)):
            raise UserError(_refusal(f"{name}.{key}", changes[key], None))
    return new


def check_types(values: Any) -> None:
    """Raise UserError unless each field of a dataclass has a value of its type."""
    for name, hint in get_type_hints(type(values), include_extras=True).items():
        value = getattr(values, name)
        try:
            msgspec.convert(value, hint)
        except msgspec.ValidationError:
            raise UserError(_refusal(name, value, hint)) from None
        several = value if isinstance(value, tuple) else (value,)
        if not all(math.isfinite(number) for number in several if isinstance(number, float)):
            raise UserError(f"{name} = {value} must be finite")


def _unpacked(value: Any, hint: Any) -> Any:
    """Return None or several values for a text that stands for them, else the value."""
    if not isinstance(value, str):
        return value
    if value in ("none", "") and type(None) in get_args(hint):
        return None
    if get_origin(hint) is tuple:
        return value.split(",")
    return value


def _finite(value: Any) -> bool:
    """Whether the numbers of a value are of a size that arithmetic can hold."""
    several = value if isinstance(value, tuple) else (value,)
    return all(abs(number) <= MOST for number in several if isinstance(number, int | float))


def _refusal(name: str, value: Any, hint: Any) -> str:
    """Return the message on a value that its type ``hint`` refuses; without one it is too large."""
    name = name.removeprefix(".")
    if hint is None:
        return f"{name} = {value} must be a number of at most {MOST:.0e}"
    if get_origin(hint) is tuple:
        wanted = _wanted(value, get_args(hint)[0])
        return f"{name} = {value} must be {wanted}, or several of them with commas between"
    return f"{name} = {value} must be {_wanted(value, hint)}"


def scalar(value: Any) -> Any:
    """Return the Python number of a scalar of NumPy or torch, and anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _wanted(value: Any, hint: Any) -> str:
    """Describe the values of the type ``hint``: its ranges and words, and a suggestion."""
    info = msgspec.inspect.type_info(hint)
    kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    choices = []
    for kind in kinds:
        if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
            bounds = (
                ("at least", kind.ge),
                ("above", kind.gt),
                ("at most", kind.le),
                ("below", kind.lt),
            )
            limits = " and ".join(
                f"{word} {bound:g}" for word, bound in bounds if bound is not None
            )
            what = "a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"
            choices.append(f"{what} {limits}".strip())
    words = words_of(hint)
    choices += words if len(words) == 1 else [f"one of {', '.join(words)}"] if words else []
    if any(isinstance(kind, msgspec.inspect.NoneType) for kind in kinds):
        choices.append("none")
    return " or ".join(choices or ["text"]) + (
        f";{did_you_mean(str(value), words)}".rstrip(";") if words else ""
    )


def words_of(hint: Any) -> list[str]:
    """Return the words that a type allows, in their order."""
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    return [
        word
        for part in (hint, *get_args(hint))
        if get_origin(part) is Literal
        for word in get_args(part)
    ]
