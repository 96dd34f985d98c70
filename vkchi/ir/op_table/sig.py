"""Signature language of the op table: type inference from argument types.

`"T:num, T -> T"`: two arguments of one numeric type, and a result of that type. An item is:
- a variable with a class (`T:num`), or a variable bound before (`T`);
- `B(T)`: u1 of T's shape;
- `E(T)`: T's scalar type;
- `U(T)`: unsigned integers of T's width and shape;
- `R`: the type given by the caller;
- the name of a scalar type.

Classes: num (i u f), int (i u), float, bits (i u b), any. A suffix `.scalar` or `.tensor` restricts
the shape.

    >>> OpSignature("T:num, T -> B(T)").infer((i32, i32), None)
    u1
"""

from __future__ import annotations

from vkchi.types import SCALARS, Scalar, Tensor, Type, scalar_of, u1, with_scalar

CLASSES = {"num": "iuf", "int": "iu", "float": "f", "bits": "iub", "any": "iufb"}
WORDS = {
    "num": "numbers", "int": "integers", "float": "floating-point numbers",
    "bits": "integers or bools", "any": "numbers or bools",
}  # fmt: skip


class SignatureError(TypeError):
    """Error: the arguments of an op do not fit its signature."""


class OpSignature:
    """A parsed signature. `args` and `result` hold its items as strings."""

    __slots__ = ("args", "result", "text")

    def __init__(self, text: str) -> None:
        left, _, right = text.partition("->")
        self.text = text
        self.args = [item.strip() for item in left.split(",") if item.strip()]
        self.result = right.strip()

    @property
    def gives_floats(self) -> bool:
        """True if the result may be, or contain, a float; also for an empty result."""
        item = self.result
        if item in SCALARS:
            return SCALARS[item].kind == "f"
        if item[:2] in ("B(", "U("):
            return False
        classes = dict(arg.partition(":")[::2] for arg in self.args if ":" in arg)
        kinds = classes.get(item.removeprefix("E(").removesuffix(")"), "any")
        return "f" in CLASSES[kinds.partition(".")[0]]

    def infer(self, types: tuple[Type, ...], given: Type | None) -> Type | None:
        """Return the result type for arguments of these types, or None if there is no result.

        `given` is the type for the item `R`. Raises SignatureError if the types do not fit.
        """
        if len(types) != len(self.args):
            raise SignatureError(f"takes {len(self.args)} values, not {len(types)}")
        bound: dict[str, Type] = {}
        for item, t in zip(self.args, types, strict=True):
            _match(item, t, bound)
        if not self.result:
            return None
        if self.result == "R":
            if given is None:
                raise SignatureError("needs a result type")
            return given
        return _resolve(self.result, bound)


def _match(item: str, t: Type, bound: dict[str, Type]) -> None:
    name, _, cls = item.partition(":")
    if cls:
        _check_class(t, cls)
        bound[name] = t
        return
    want = _resolve(item, bound)
    if want is not t:
        raise SignatureError(f"takes {want} here, not {t}")


def _check_class(t: Type, cls: str) -> None:
    kinds, _, shape = cls.partition(".")
    ok = isinstance(t, Scalar | Tensor)
    if shape:
        ok = isinstance(t, Scalar if shape == "scalar" else Tensor)
    elem = t.elem if isinstance(t, Tensor) else t
    if not ok or not isinstance(elem, Scalar) or elem.kind not in CLASSES[kinds]:
        raise SignatureError(f"takes {WORDS[kinds]}, not {t}")


def _resolve(item: str, bound: dict[str, Type]) -> Type:
    if item in bound:
        return bound[item]
    if item in SCALARS:
        return SCALARS[item]
    inner = bound[item[2:-1]]
    if item[0] == "B":
        return with_scalar(inner, u1)
    if item[0] == "U":
        return with_scalar(inner, SCALARS[f"u{scalar_of(inner).bits}"])
    return inner.elem if isinstance(inner, Tensor) else inner
