"""Which methods are tuned together: a combination takes over the best values of its parts."""

from __future__ import annotations

from collections.abc import Iterable

from hebblm.adapt.names import DYNAMIC
from hebblm.errors import UserError

RESTS_ON: dict[str, tuple[str, ...]] = {
    "lstm": (),
    "mixture": (),
    "cache": (),
    "knn": (),
    "mbpa": (),
    "mbpa-absolute": (),
    "mbpa-guarded": (),
    "hebb": ("mbpa",),
    "mixture+cache": ("mixture",),
    "mixture+mbpa": ("mixture", "mbpa"),
    "mixture+hebb": ("mixture", "hebb"),
    "hebb-learned": ("hebb",),
    "mixture+hebb-learned": ("mixture", "hebb-learned"),
    "mixture-gated": (),
    DYNAMIC: (),
    "dynamic+mixture": (DYNAMIC,),
    "dynamic+mixture+hebb": ("dynamic+mixture", "hebb"),
    "dynamic+mixture+cache": ("dynamic+mixture",),
}
"""Every method that can be tuned, with those whose values it takes over."""


def with_parts(methods: Iterable[str]) -> set[str]:
    """Return methods with all that they rest on.

    Raises:
        UserError: a method that has no values of its own.
    """
    found: set[str] = set()
    for name in methods:
        if name not in RESTS_ON:
            raise UserError(f"{name} has no values of its own to tune; choose from {', '.join(RESTS_ON)}")
        found |= {name, *with_parts(RESTS_ON[name])}
    return found
