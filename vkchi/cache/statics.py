"""Attributes of objects as they stand there, without running any code of the program.

`inspect.getattr_static` says the same of plain objects, and loads parsers, 5 ms. Must not know:
what the attributes mean.
"""

from __future__ import annotations

from types import GetSetDescriptorType
from typing import Any


def own_or_held(value: Any, name: str) -> Any:
    """An attribute of an object as it stands there, itself or in its class; no code runs."""
    holders = type(value).__mro__
    own = held_by(holders, "__dict__")
    if isinstance(own, GetSetDescriptorType):
        attributes = own.__get__(value)
        if name in attributes:
            return attributes[name]
    return held_by(holders, name)


def held_by(classes: tuple[type, ...], name: str) -> Any:
    """What the first of some classes that has this name in it has there; None if none has."""
    return next((vars(cls)[name] for cls in classes if name in vars(cls)), None)
