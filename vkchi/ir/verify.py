"""IR verifier: checks the rules of valid IR. The first violation raises InvalidIR.

Values
 1. Every kind is a row of the op table.
 2. An op's stored type is the one its row infers from its args, attr and, where given, its type.
 3. An argument is defined before: it is a parameter of the Func or of an enclosing region, or the
    result of an earlier op in this or an enclosing region.
 4. An op or parameter occurs in one position only: nothing is defined twice.
 5. Carried values, yielded values and region parameters are scalars or tensors, never pointers or
    arrays.

Attributes
 6. A `const` holds one bit pattern per component, a non-negative int of the scalar's width.
 7. Other attrs are as the row states:
    - `elem`: None or "inbounds";
    - `address`: an int, alone or in a pair with "nneg";
    - `load` and `store`: None or a power of two;
    - `for`: None, "nounroll" or "guarded";
    - `parallel`: None, a positive int, or a tuple of these;
    - components, axes and sites: non-negative ints (components and axes in range: rule 2);
    - others: None.

Structure
 8. A region ends in `yield`, which occurs nowhere else.
 9. A control op has the number of regions that its row states. Other ops have none, and at most one
    result; `yield` has no result.
10. The results of a control op are its own, numbered from 0; it is not a value itself.
11. `if` takes one u1; its two regions take nothing and yield the result types.
12. `for` takes a begin and an end of one integer type of 32 or 64 bits, then initial values. Its
    region takes (index, *carried) and yields carried; the results have the types of carried.
13. `while` takes initial values. Its first region takes carried and yields one u1. The second takes
    carried and yields carried. The results have the types of carried.
14. `parallel` takes a begin and an end per axis, both i32 or both i64, and has at least one axis.
    Its region takes an index of that type per axis and yields nothing; it has no results. A tuple
    as its attr has one int per axis, for at most three axes.
15. `parallel` is directly in a Func's body.
16. A Func's body takes nothing and yields nothing.

Func parameters
17. Their names are nonempty and unique.
18. They are scalars, tensors, or arrays in global memory.
19. Array types are consistent: one extent per axis, none negative. A layout requires a static shape
    and has as many axes, one offset per component, and an origin of 0 or ndim numbers. Shared
    arrays have a static shape.

Programs
20. Funcs have different names; a parameter name has one type in the whole Program.
21. In a Program of several Funcs, each Func has at most one `parallel`, which only the body's
    `yield` follows. The other ops beside it do not write, update atomically, report or synchronize.

Parameter attributes
22. Only array parameters of Funcs have attributes. `like` is for arrays of dynamic shape. If a
    parameter has that name, it is a dynamic array of as many axes, without a `like` of its own.
    `aligned` is a power of two.

A message gives the rule's number, the op with its source location, and the Func. Valid combinations
of kind, attr and types are memoized for later checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NoReturn

from vkchi.errors import InvalidIR
from vkchi.ir.core import Func, Op, Param, Program, Region, Result, Value, find_parallel, walk
from vkchi.ir.op_table.memory_ops import NNEG
from vkchi.ir.op_table.table import SignatureError
from vkchi.ir.ops import GUARDED, NOUNROLL, TABLE, Effect
from vkchi.types import SCALARS, Array, Scalar, Tensor, Type, i32, i64, u1
from vkchi.types.core import PLAIN

Types = tuple["Type | None", ...]
_type_of = attrgetter("type")
_GOOD: set[tuple[Any, ...]] = set()  # memo of valid (kind, attr, stored type, *types of args)
_GOOD_ARRAYS: set[Array] = set()
_REMEMBERED = 65536  # entries per memo; array types contain user-chosen extents
_WIDTH = {t: 1 << t.bits for t in SCALARS.values()}
_CONTROL = {kind: row.control for kind, row in TABLE.items() if row.control}
_BESIDE_PARALLEL = (Effect.PURE, Effect.ALLOC, Effect.READ, Effect.CONTROL)


def _remember(good: set[Any], key: Any) -> None:
    if len(good) >= _REMEMBERED:
        good.clear()
    good.add(key)


def _is_count(attr: Any) -> bool:
    return type(attr) is int and attr >= 0


def _is_size(attr: Any) -> bool:
    return _is_count(attr) and attr > 0


def workgroup_lengths(attr: Any) -> tuple[Any, ...]:
    """Return the attr of a `parallel` as a tuple: itself if it is one, else its one element."""
    return attr if type(attr) is tuple else (attr,)


def _is_marked(attr: Any) -> bool:
    return type(attr) is tuple and len(attr) == 2 and type(attr[0]) is int and attr[1] == NNEG


# Validity of an attr, by the word before the colon in the row's `attr`.
_FORMS: dict[str, Callable[[Any], bool]] = {
    "": lambda attr: attr is None,
    "inbounds": lambda attr: attr is None or attr == "inbounds",
    "hint": lambda attr: attr in (None, NOUNROLL, GUARDED),
    "component": _is_count,
    "axis": _is_count,
    "site": _is_count,
    "scalars": lambda attr: type(attr) is int or _is_marked(attr),
    "workgroup": lambda attr: attr is None or all(map(_is_size, workgroup_lengths(attr))),
    "alignment": lambda attr: attr is None or (_is_count(attr) and attr.bit_count() == 1),
    "bits": lambda attr: True,  # rule 6
}
_ATTRS = {kind: _FORMS[row.attr.partition(":")[0]] for kind, row in TABLE.items()}


def verify(fn: Func, known: set[Value] | None = None) -> None:
    """Check rules 1 to 19 and 22 for a Func. Raises InvalidIR.

    `known` is a set of ops without regions that passed before: for these only rules 3 and 4 are
    checked again. New ops that pass are added to it.
    """
    check = _Checker(fn, set() if known is None else known)
    check.params()
    if fn.body.params:
        check.fail(16, "the body has parameters")
    check.region(fn.body, None)
    if fn.body.yielded:
        check.fail(16, "the body yields values", fn.body.ops[-1])


def verify_program(program: Program) -> None:
    """Check every Func by `verify`, and rules 20 and 21 for the Program. Raises InvalidIR."""
    types: dict[str, Type] = {}
    names: set[str] = set()
    for fn in program.funcs:
        verify(fn)
        check = _Checker(fn, set())
        if fn.name in names:
            check.fail(20, f"two Funcs are called @{fn.name}")
        names.add(fn.name)
        for p in fn.params:
            if types.setdefault(p.name, p.type) is not p.type:
                check.fail(20, f"%{p.name} is {p.type} here and {types[p.name]} elsewhere")
        if len(program.funcs) > 1:
            check.dispatch()


class _Checker:
    """Checks one Func.

    `scope` holds the values that are visible at the current op, `seen` all ops and parameters so
    far.
    """

    __slots__ = ("fn", "known", "scope", "seen")

    def __init__(self, fn: Func, known: set[Value]) -> None:
        self.fn, self.known = fn, known
        self.scope: set[Value | None] = set()
        self.seen: set[Value] = set()

    def fail(self, rule: int, sentence: str, op: Op | None = None) -> NoReturn:
        from vkchi.ir.text import print_op  # lazy: only for errors

        span = (op.span if op is not None else None) or self.fn.span
        place = f"{span.place}: " if span is not None else ""
        quote = f"\n    {print_op(op, self.fn)}" if op is not None else ""
        finding = f"{place}rule {rule} of valid IR: {sentence}{quote}\nin func @{self.fn.name}"
        raise InvalidIR(finding)

    # --- regions and ops

    def region(self, region: Region, owner: Op | None) -> None:
        ops, scope = region.ops, self.scope
        if not ops or ops[-1].kind != "yield":
            self.fail(8, "a region does not end in `yield`", ops[-1] if ops else owner)
        self.define(ops, region.params)
        scope.update(region.params)
        is_visible, add, controls = scope.issuperset, scope.add, []
        known, learn = self.known, self.known.add
        for op in ops[:-1]:
            kind, args = op.kind, op.args
            if args and not is_visible(args):
                self.undefined(op)
            if op in known:
                add(op)
                continue
            if kind == "const":
                self.const(op)
            elif kind in _CONTROL:
                controls.append(op)
                self.control(op, owner)
                scope.update(op.results)
                continue
            elif (kind, op.attr, op.type, *map(_type_of, args)) not in _GOOD:
                self.plain(op)
            if op.regions or (op.type is None and op.results):
                self.fail(9, f"`{kind}` has regions or several results", op)
            add(op)
            learn(op)
        self.end(ops[-1])
        scope.difference_update(ops, region.params, *[op.results for op in controls])

    def end(self, op: Op) -> None:
        """Rules 3, 5 and 9 for the `yield` of a region."""
        if not self.scope.issuperset(op.args):
            self.undefined(op)
        if op.regions or op.results or op.attr is not None:
            self.fail(9, "`yield` has regions, results or an attr", op)
        for v in op.args:
            if not isinstance(v.type, Scalar | Tensor):
                self.fail(5, f"`yield` passes on {v.type or 'an op that has no value'}", op)

    def define(self, ops: list[Op], params: tuple[Param, ...]) -> None:
        """Rule 4: nothing is defined twice."""
        count = len(self.seen) + len(ops) + len(params)
        self.seen.update(ops)
        self.seen.update(params)
        if len(self.seen) != count:
            kinds = ", ".join(sorted({op.kind for op in ops if ops.count(op) > 1}))
            what = f"`{kinds}`" if kinds else "an op or parameter of this region"
            self.fail(4, f"{what} stands in more than one place", ops[0] if ops else None)

    def undefined(self, op: Op) -> NoReturn:
        k = next(k for k, v in enumerate(op.args) if v not in self.scope)
        self.fail(3, f"argument {k + 1} of `{op.kind}` is not defined before, or not here", op)

    def const(self, op: Op) -> None:
        t, attr = op.type, op.attr
        if isinstance(t, Tensor) and type(attr) is tuple:
            limit = _WIDTH[t.elem]
            good = len(attr) == t.size and all(type(k) is int and 0 <= k < limit for k in attr)
        else:
            good = type(attr) is int and isinstance(t, Scalar) and 0 <= attr < _WIDTH[t]
        if not good or op.args:
            self.fail(6, f"a constant of {t} has no such bits", op)

    def plain(self, op: Op) -> None:
        """Rules 1, 2, 7, 8 and 19 for an op that is not memoized as valid."""
        if op.kind == "yield":
            self.fail(8, "`yield` is not the last op of its region", op)
        row = TABLE.get(op.kind)
        if row is None:
            self.fail(1, f"there is no op `{op.kind}`", op)
        types = tuple(map(_type_of, op.args))
        if None in types:
            self.fail(2, f"`{op.kind}` takes an op that has no value", op)
        if not _ATTRS[op.kind](op.attr):
            self.fail(7, f"`{op.kind}` has the attr {op.attr!r}", op)
        try:
            t = row.infer(types, op.attr, op.type)
        except SignatureError as e:
            self.fail(2, f"`{op.kind}` {e}", op)
        if t is not op.type:
            self.fail(2, f"`{op.kind}` makes {t or 'nothing'}, not {op.type or 'nothing'}", op)
        for array in (op.type, *types):
            self.array(array, op)
        _remember(_GOOD, (op.kind, op.attr, op.type, *types))

    # --- control

    def control(self, op: Op, owner: Op | None) -> None:
        """Check one control op with its regions, rules 5, 7 and 9 to 15."""
        kind, regions = op.kind, op.regions
        if len(regions) != _CONTROL[kind].regions:
            self.fail(9, f"`{kind}` has {len(regions)} regions", op)
        if kind == "parallel" and owner is not None:
            self.fail(15, f"`parallel` stands inside `{owner.kind}`", op)
        for k, v in enumerate(op.results):
            if not isinstance(v, Result) or v.op is not op or v.index != k:
                self.fail(10, f"the results of `{kind}` are not its own", op)
        for region in regions:
            self.region(region, op)
        key: list[Any] = [kind, op.attr, op.type, _types(op.args), _types(op.results)]
        for region in regions:
            key += (_types(region.params), _types(region.yielded))
        if tuple(key) not in _GOOD:
            self.contract(op)
            _remember(_GOOD, tuple(key))

    def contract(self, op: Op) -> None:
        """Rules 5, 7, 10 and 11 to 14 for a control op that is not memoized as valid."""
        if op.type is not None:
            self.fail(10, f"`{op.kind}` has a type of its own", op)
        if not _ATTRS[op.kind](op.attr):
            self.fail(7, f"`{op.kind}` has the attr {op.attr!r}", op)
        for v in chain(op.args, op.results, *[region.params for region in op.regions]):
            if not isinstance(v.type, Scalar | Tensor):
                self.fail(5, f"`{op.kind}` passes on {v.type or 'an op that has no value'}", op)
        _CONTRACTS[op.kind](self, op)

    def same(self, rule: int, op: Op, what: str, values: Sequence[Value], want: Types) -> None:
        types = tuple(map(_type_of, values))
        if types != want:
            texts = [", ".join(map(str, ts)) or "nothing" for ts in (types, want)]
            self.fail(rule, f"{what} of `{op.kind}` are {texts[0]}, not {texts[1]}", op)

    def if_(self, op: Op) -> None:
        self.same(11, op, "the arguments", op.args, (u1,))
        for region in op.regions:
            self.same(11, op, "region parameters", region.params, ())
            self.same(11, op, "yielded values", region.yielded, _types(op.results))

    def for_(self, op: Op) -> None:
        index = op.args[0].type if op.args else None
        if not isinstance(index, Scalar) or index.kind not in "iu" or index.bits < 32:
            self.fail(12, f"`for` cannot count in {index}", op)
        carried, (body,) = _types(op.args[2:]), op.regions
        self.same(12, op, "begin and end", op.args[:2], (index, index))
        self.same(12, op, "region parameters", body.params, (index, *carried))
        self.same(12, op, "yielded values", body.yielded, carried)
        self.same(12, op, "the results", op.results, carried)

    def while_(self, op: Op) -> None:
        carried, (cond, body) = _types(op.args), op.regions
        self.same(13, op, "condition parameters", cond.params, carried)
        self.same(13, op, "values that the condition yields", cond.yielded, (u1,))
        self.same(13, op, "region parameters", body.params, carried)
        self.same(13, op, "yielded values", body.yielded, carried)
        self.same(13, op, "the results", op.results, carried)

    def parallel(self, op: Op) -> None:
        types = _types(op.args[::2])
        if not types or any(t not in (i32, i64) for t in types):
            names = ", ".join(map(str, types)) or "nothing"
            self.fail(14, f"`parallel` cannot count in {names}", op)
        if type(op.attr) is tuple and not len(types) == len(op.attr) <= 3:
            self.fail(14, f"{len(types)} axes are mapped to workgroups {op.attr}", op)
        self.same(14, op, "begins and ends", op.args[1::2], types)
        self.same(14, op, "region parameters", op.regions[0].params, types)
        self.same(14, op, "yielded values", op.regions[0].yielded, ())
        self.same(14, op, "the results", op.results, ())

    # --- parameters

    def params(self) -> None:
        """Rules 4, 17 to 19 and 22: parameters of the Func."""
        params = self.fn.params
        self.define([], params)
        self.scope.update(params)
        names = {""}
        for k, p in enumerate(params):
            if p.name in names:
                self.fail(17, f"parameter {k + 1} has no name of its own: {p.name!r}")
            names.add(p.name)
            is_global = isinstance(p.type, Array) and p.type.space == "global"
            if not is_global and not isinstance(p.type, Scalar | Tensor):
                self.fail(18, f"parameter %{p.name} is {p.type}")
            self.array(p.type, None)
            if p.attributes is not PLAIN:
                self.attributes(p)

    def attributes(self, p: Param) -> None:
        problem = _attributes_problem(
            p, next((q for q in self.fn.params if q.name == p.attributes.like), None)
        )
        if problem:
            self.fail(22, f"%{p.name} {problem}")

    def array(self, t: Type | None, op: Op | None) -> None:
        if isinstance(t, Array) and t not in _GOOD_ARRAYS:
            problem = _array_problem(t)
            if problem:
                self.fail(19, f"{t} {problem}", op)
            _remember(_GOOD_ARRAYS, t)

    def dispatch(self) -> None:
        loop = find_parallel(self.fn)
        if loop is None:
            return
        ops = self.fn.body.ops
        if loop is not ops[-2]:
            self.fail(21, "something follows `parallel` in a dispatch", ops[ops.index(loop) + 1])
        for op in chain(*[_nested(op) for op in ops[:-2]]):
            if TABLE[op.kind].effect not in _BESIDE_PARALLEL:
                self.fail(21, f"`{op.kind}` stands beside `parallel` in a dispatch", op)


_CONTRACTS: dict[str, Callable[[_Checker, Op], None]] = {
    "if": _Checker.if_,
    "for": _Checker.for_,
    "while": _Checker.while_,
    "parallel": _Checker.parallel,
}


def _types(values: Sequence[Value]) -> Types:
    return tuple(map(_type_of, values))


def _nested(op: Op) -> Iterator[Op]:
    yield op
    for region in op.regions:
        yield from walk(region)


def _attributes_problem(p: Param, like: Param | None) -> str:
    """Return a description of invalid attributes of `p`, or "".

    `like` is the parameter that its attribute `like` names, or None.
    """
    t, known = p.type, p.attributes
    if not isinstance(t, Array):
        return "has attributes, and is no array" if known != PLAIN else ""
    if known.aligned < 1 or known.aligned & (known.aligned - 1):
        return f"is aligned to {known.aligned} bytes, which is no power of two"
    if known.like and t.shape is not None:
        return f"is like %{known.like}, and has a shape of its own"
    if like is None:
        return ""
    is_fit = isinstance(like.type, Array) and like.type.shape is None and like.type.ndim == t.ndim
    if not is_fit or like.attributes.like:
        return f"is like %{like.name}, which is {like.type} and tells no shape for {t}"
    return ""


def _array_problem(t: Array) -> str:
    """Return a description of an inconsistent array type, or ""."""
    if t.shape is None:
        if t.space == "shared" or t.layout is not None:
            return "needs a static shape"
        return ""
    if len(t.shape) != t.ndim or any(extent < 0 for extent in t.shape):
        return f"has a shape that does not fit {t.ndim} axes"
    if t.layout is None:
        return ""
    if t.layout.rank != t.ndim or len(t.layout.origin) not in (0, t.ndim):
        return f"has a layout of other than {t.ndim} axes"
    if len(t.layout.components) != t.scalars_per_element:
        return "has a layout of another element type"
    return ""
