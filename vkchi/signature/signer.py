"""Signatures and keys of calls, for all parameters of a kernel together.

A signature is made of all that the compiled code depends on. A key is cheaper: calls with equal
keys have the same objects, and so the same signature.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.state.captured_values import is_read_by_parts
from vkchi.interop import dlpack, host_views
from vkchi.interop.in_place import are_disjoint_arguments, host_arrays
from vkchi.interrupts.local import local
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime, await_host_memory, has_several
from vkchi.signature import MOST_F32, OpenParameter, Parameter
from vkchi.signature.bound import ImportedArray, import_from_cuda
from vkchi.types import Scalar, integer_range
from vkchi.types.lazy_numpy import is_array_of_numpy

# Array classes that need no conversion; extended on first use.
NATIVE: set[type] = set()

Key = tuple[object, ...]
# Source of the token of an argument `x`, by parameter kind. `ref(x)` is one object per `x` while it
# is held.
TOKENS = {
    "array": "{x}.token", "shared": "{x}.token", "template": "token_of({x})",
    "self": "id(ref({x}))", "object": "type({x})",
}  # fmt: skip


class Signer:
    """The parameters of a kernel in order; computes the signatures and keys of its calls.

    key: function from arguments to their key (`key_function`).
    """

    def __init__(self, parameters: list[Parameter]) -> None:
        self.parameters = parameters
        self._arrays = [k for k, p in enumerate(parameters) if p.kind == "array"]
        self._objects = [
            k for k, p in enumerate(parameters) if p.kind in ("template", "self", "object")
        ]
        self._open = {k: p for k, p in enumerate(parameters) if isinstance(p, OpenParameter)}
        self._resolved: dict[tuple[int, ...], Signer] = {}  # by the positions of templates
        self.key = key_function(parameters)

    def resolved(self, args: tuple[Any, ...]) -> Signer:
        """Return the signer for calls with arguments of these kinds, whose parameters are not
        open: they are arrays or templates."""
        if not self._open:
            return self
        chosen = {k: p.chosen(args[k]) for k, p in self._open.items()}
        others = tuple(k for k, p in chosen.items() if p is not self.parameters[k])
        if not others:
            return self
        found = self._resolved.get(others)
        if found is None:
            parameters = [chosen.get(k, p) for k, p in enumerate(self.parameters)]
            found = self._resolved[others] = Signer(parameters)
            found._open = {}
        return found

    def adopt(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, with arrays of other libraries replaced by numpy views.

        Torch tensors and CUDA arrays remain, and objects without DLPack, numpy's array interface
        and the buffer protocol. Raises ArgumentError if DLPack cannot export an array to numpy.
        """
        for k in self._arrays:
            if type(args[k]) not in NATIVE:
                args = (*args[:k], self._adopted(self.parameters[k], args[k]), *args[k + 1 :])
        return args

    def share(
        self, args: tuple[Any, ...], runtime: Runtime, *, is_launch: bool
    ) -> tuple[tuple[Any, ...], list[ImportedArray]]:
        """Return the arguments with arrays in importable host memory replaced by device arrays, and
        the imports.

        Nothing in host memory is importable in debug mode, or if the device cannot import it. For
        launches, arrays in CUDA memory are replaced too. Other arrays are copied later. Raises
        ArgumentError for CUDA memory that cannot be imported.
        """
        hosts = runtime.host_arrays or host_arrays(runtime)
        find = hosts.find if hosts.can_import else None
        if has_several():
            await_host_memory(but=runtime)
        shared: list[ImportedArray] = []
        given = list(args)
        for k in self._arrays:
            arg = given[k]
            if isinstance(arg, Ndarray):
                continue
            parameter: Any = self.parameters[k]
            found = None if find is None else find(arg, parameter.element_axes)
            if found is not None:
                given[k] = found
                shared.append(ImportedArray(parameter.name, found.host, found, arg))
            elif is_launch and host_views.is_cuda_array(arg):
                shared.append(import_from_cuda(parameter, arg, shared, runtime))
                given[k] = shared[-1].array
        return (tuple(given), shared) if shared else (args, shared)

    def _adopted(self, parameter: Parameter, arg: Any) -> Any:
        if isinstance(arg, Storage) or is_array_of_numpy(arg) or host_views.is_torch(arg):
            NATIVE.add(type(arg))
            return arg
        if host_views.is_cuda_array(arg):
            return arg
        try:
            view = dlpack.view_of_foreign(arg)
        except ArgumentError as e:
            raise parameter.refuse(str(e)) from None
        return arg if view is None else view

    def sign(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the signature of a call.

        It contains each argument's part, of an object its class. With several arrays, it also
        contains for each the position of the first array of equal shape, for a 0-D array its own
        position. The bool of `are_disjoint_arguments` is last.
        """
        key = [p.sign(a) for p, a in zip(self.parameters, args, strict=True)]
        arrays = self._arrays
        if len(arrays) > 1:
            first: dict[Any, int] = {}
            for k in arrays:
                ndim, shape = key[k].type.ndim, args[k].shape
                if type(shape) is not tuple or len(shape) > ndim:
                    shape = tuple(shape)[:ndim]
                key.append(first.setdefault(shape, k) if ndim else k)
            key.append(are_disjoint_arguments([args[k] for k in arrays]))
        return tuple(key)

    def identify(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the keys of the objects among the arguments; see `Parameter.identify`."""
        return tuple([self.parameters[k].identify(args[k]) for k in self._objects])

    def specs(self, args: tuple[Any, ...], key: tuple[Any, ...]) -> tuple[ArgSpec, ...]:
        """Return the descriptions of a call's arguments for the frontend. Array attributes include
        the shape and no-alias facts that `sign` established."""
        signed = list(key[: len(self.parameters)])
        if len(self._arrays) > 1:
            *firsts, noalias = key[len(signed) :]
            for k, first in zip(self._arrays, firsts, strict=True):
                like = "" if first == k else self.parameters[first].name
                signed[k] = signed[k].given(like, noalias=noalias)
        return tuple(p.spec(a, s) for p, a, s in zip(self.parameters, args, signed, strict=True))


def key_function(parameters: Sequence[Parameter]) -> Callable[[tuple[Any, ...]], Key | None]:
    """Return the function from arguments to their key: the tokens of all but scalars.

    The key is None for scalars that `bind` would convert or refuse, and for other arguments that
    are not cached.
    """
    tests, tokens = [], []
    for k, p in enumerate(parameters):
        for test, token in key_parts(p, f"a[{k}]", f"p{k}"):
            tests += [test] if test else []
            tokens += [f"{token},"] if token else []
    return compile_key(" and ".join(tests) or "True", f"({''.join(tokens)})")


def key_parts(p: Parameter, x: str, variable: str) -> Iterator[tuple[str, str]]:
    """Yield the sources of a test and of a token, or "", of an argument, or of each member of a
    pack."""
    if p.kind == "pack":
        yield f"({variable} := {x}._entries) is not None", f"{x}.__vkchi_type__"
        for k, (name, member) in enumerate(p.members.items()):  # type: ignore[attr-defined]
            yield from key_parts(member, f"{variable}[{name!r}]", f"{variable}_{k}")
    elif p.is_optional:
        yield f"({x} is None or isinstance({x}, Storage))", f"None if {x} is None else {x}.token"
    elif p.kind in TOKENS:
        test = f"isinstance({x}, Storage)" if p.kind in ("array", "shared") else ""
        yield test, TOKENS[p.kind].format(x=x)
    else:
        yield scalar_test(p.type, x) if p.kind == "scalar" else "False", ""


def token_of(x: Any) -> object:
    """Return the token of a compile-time argument. Raises TypeError for an argument that is not
    cached."""
    if isinstance(x, Storage):
        return x.token
    if x is None or type(x) in (int, str, bool):
        return (type(x), x)
    if is_read_by_parts(x):
        return id(weakref.ref(x))
    raise TypeError


def scalar_test(t: Scalar, x: str) -> str:
    """Source of the test that a Python scalar is bound to a parameter of type `t` unchanged."""
    if t.kind == "f":
        return f"(type({x}) is float or type({x}) is int) and {-MOST_F32} <= {x} <= {MOST_F32}"
    if t.kind == "b":
        return f"type({x}) is bool"
    low, high = integer_range(t)
    return f"type({x}) is int and {low} <= {x} <= {high}"


@lru_cache(256)
def compile_key(test: str, tokens: str) -> Callable[[tuple[Any, ...]], Key | None]:
    text = (
        "def key(a):\n"
        f" try: return {tokens} if {test} else None\n"
        " except local(AttributeError, TypeError, KeyError): return None\n"
    )
    made: dict[str, Any] = {
        "Storage": Storage, "local": local, "ref": weakref.ref, "token_of": token_of,
    }  # fmt: skip
    exec(compile(text, "<vkchi key>", "exec"), made)
    return made["key"]  # type: ignore[no-any-return]
