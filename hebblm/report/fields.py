"""Checked access to the fields of a JSON object, with errors that name the offending key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from hebblm.errors import UserError


class Fields:
    """A JSON object whose fields are taken by name and type; what was not taken is in :meth:`rest`.

    Every method raises :class:`~hebblm.errors.UserError` where the field is absent or of another type.
    """

    def __init__(self, value: Any, where: str) -> None:
        """Wrap ``value``, which stands at ``where`` in the file."""
        self._where = where
        self._taken: set[str] = set()
        if not isinstance(value, dict):
            self._refuse(where, "an object", value)
        self._value: dict[str, Any] = value

    def __contains__(self, key: str) -> bool:
        """Say whether the key is there and not null."""
        present = self._value.get(key) is not None
        if not present:
            self._taken.add(key)
        return present

    def text(self, key: str) -> str:
        """Take a string."""
        value = self._take(key)
        return value if isinstance(value, str) else self._refuse(f"{self._where}.{key}", "text", value)

    def count(self, key: str) -> int:
        """Take a whole number that is not negative."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._refuse(f"{self._where}.{key}", "a whole number of at least 0", value)
        return value

    def number(self, key: str) -> float:
        """Take a number."""
        return self._as_number(self._take(key), key)

    def optional_number(self, key: str) -> float | None:
        """Take a number or null."""
        value = self._take(key)
        return None if value is None else self._as_number(value, key)

    def mapping(self, key: str) -> dict[str, Any]:
        """Take an object as it is."""
        value = self._take(key)
        return value if isinstance(value, dict) else self._refuse(f"{self._where}.{key}", "an object", value)

    def nested(self, key: str) -> Fields:
        """Take an object to be read field by field."""
        return Fields(self._take(key), f"{self._where}.{key}")

    def named_entries(self, key: str) -> dict[str, Fields]:
        """Take an object of objects."""
        return {name: Fields(item, f"{self._where}.{key}.{name}") for name, item in self.mapping(key).items()}

    def entries(self, key: str) -> list[Fields]:
        """Take a list of objects."""
        return [Fields(item, f"{self._where}.{key}[{index}]") for index, item in enumerate(self._list(key))]

    def optional_entries(self, key: str) -> list[Fields]:
        """Take a list of objects; an empty one where the key is absent or null."""
        return self.entries(key) if key in self else []

    def curve(self, key: str) -> tuple[tuple[int, float], ...]:
        """Take a list of pairs (position, value)."""
        points: list[tuple[int, float]] = []
        for item in self._list(key):
            if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], int):
                self._refuse(f"{self._where}.{key}", "a list of [position, value] pairs", item)
            points.append((item[0], self._as_number(item[1], key)))
        return tuple(points)

    def rest(self) -> Mapping[str, Any]:
        """Return the fields that nobody took."""
        return {key: value for key, value in self._value.items() if key not in self._taken}

    def _take(self, key: str) -> Any:
        """Return a field and mark it as taken."""
        if key not in self._value:
            raise UserError(f"{self._where} lacks {key!r}; the file is incomplete, evaluate again")
        self._taken.add(key)
        return self._value[key]

    def _list(self, key: str) -> list[Any]:
        """Take a list."""
        value = self._take(key)
        return value if isinstance(value, list) else self._refuse(f"{self._where}.{key}", "a list", value)

    def _as_number(self, value: Any, key: str) -> float:
        """Return a float, refusing booleans and text."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._refuse(f"{self._where}.{key}", "a number", value)
        return float(value)

    @staticmethod
    def _refuse(where: str, expected: str, value: Any) -> NoReturn:
        """Raise the error that every wrong type ends in."""
        raise UserError(f"{where} must be {expected}, not {value!r:.60}; evaluate again or mend the file")
