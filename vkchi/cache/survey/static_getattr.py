"""Static attribute lookup like `inspect.getattr_static`, without importing `inspect`."""

from __future__ import annotations

from types import GetSetDescriptorType
from typing import Any


def own_or_held(value: Any, name: str) -> Any:
    """Return an attribute of an object or its class without running descriptors; None if absent."""
    holders = type(value).__mro__
    own = held_by(holders, "__dict__")
    if isinstance(own, GetSetDescriptorType):
        attributes = own.__get__(value)
        if name in attributes:
            return attributes[name]
    return held_by(holders, name)


def held_by(classes: tuple[type, ...], name: str) -> Any:
    """Return the attribute of the first of these classes that defines it, or None."""
    return next((vars(cls)[name] for cls in classes if name in vars(cls)), None)
