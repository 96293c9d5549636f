"""What an object was made with: all its attributes, wherever Python keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property


def attributes(value: object) -> dict[str, object]:
    """Every attribute of an object by its name: of slots, fields and dictionaries, but for what is derived and cached.

    So a parameter that somebody adds to a class is among them without being listed anywhere.
    """
    kinds = type(value).__mro__
    cached = {
        name for kind in kinds for name, attribute in vars(kind).items() if isinstance(attribute, cached_property)
    }
    values: dict[str, object] = {}
    for kind in reversed(kinds):
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            private = name.startswith("__") and not name.endswith("__")
            place = f"_{kind.__name__.lstrip('_')}{name}" if private else name
            if not name.startswith("__weakref") and name != "__dict__" and hasattr(value, place):
                values[place] = getattr(value, place)
    own: Mapping[str, object] = getattr(value, "__dict__", {})
    values |= own
    return {name: attribute for name, attribute in sorted(values.items()) if name not in cached}
