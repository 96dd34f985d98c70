"""Loop-carried dependence test for top-level `for` loops, on variables of the kernel.

A top-level loop runs in parallel unless its iterations depend on each other. The test is syntactic
and conservative:

- `a, b = b, a + b` is a dependence. So is `last = i` if `last` is read after the loop.
- `+=`, `-=`, `&=`, `|=` and `^=` of a scalar variable are atomic. They are a dependence only
  if the loop also reads the variable.
- Assignments of one constant to a variable that the loop does not read are no dependence.
- A variable is private to the iteration if every iteration assigns it before reading it, and
  nothing reads it after the loop.

    names = assigned_names(cx, loop)
    find_carried(cx, loop, names); own_variables(cx, loop, names)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from vkchi.frontend.calls.callee import is_callable_object
from vkchi.frontend.calls.inline import FunctionSignature, function_of, signature_of
from vkchi.frontend.calls.intrinsics import METHODS
from vkchi.frontend.calls.tables import find_call
from vkchi.frontend.context import Lowering
from vkchi.frontend.state.dependencies import referred_names
from vkchi.frontend.state.scope import CHANGING, Var
from vkchi.frontend.syntax.source import source_of
from vkchi.frontend.syntax.syntax_facts import (
    Assignment,
    assignments_of,
    bottom_names,
    bottom_nodes,
    events_in,
    is_loop,
    items_in,
    name_in,
    nodes_of,
    targets_of,
)
from vkchi.frontend.values.kinds import function_kind, kind_of
from vkchi.frontend.values.python_values import look_up, peek
from vkchi.frontend.values.references import MemoryTarget
from vkchi.frontend.values.trees import StructValue, leaves
from vkchi.tuples import NamedTuple

See = Callable[[ast.expr], Any]  # an expression's object, or None if unknown

_COMBINED = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)  # `op=` is atomic


class CarriedVariable(NamedTuple):
    """A variable by which iterations depend on each other.

    - node: the syntax that shows it; `{line}` in `sentence` is its line.
    - kind: "after" if it is read after the loop, "inside" if a later iteration may read it. It is
      "reduction" if the atomic statement `update` could replace the assignment.
    """

    name: str
    node: ast.AST
    kind: str
    sentence: str
    update: str = ""


def find_carried(cx: Lowering, n: ast.For, assigned: Iterable[str]) -> CarriedVariable | None:
    """Return the first of the assigned names by which iterations depend on each other, or None.

    Private variables (`why_carried`) and flags (`is_flag`) do not count.
    """
    names = [name for name in assigned if is_variable(cx.act.find(name))]
    found = (why_carried(cx, n, name) for name in names if not is_flag(n, name))
    return next((one for one in found if one is not None), None)


def own_variables(cx: Lowering, n: ast.For, assigned: Iterable[str]) -> list[Var]:
    """Return the variables among the assigned names that are private to each iteration."""
    found = {name: cx.act.find(name) for name in assigned}
    return [
        v for k, v in found.items()
        if v is not None and is_variable(v) and why_carried(cx, n, k) is None
    ]  # fmt: skip


def is_variable(var: Var | None) -> bool:
    """True if var may change, holds kernel values, and is no alias of an array element."""
    if var is None or var.kind not in CHANGING or not leaves(var.value):
        return False
    is_place = isinstance(var.value, MemoryTarget) and var.value.space == "local"
    return is_place or not kind_of(var.value).is_target or bool(var.value.roots)


def assigned_names(cx: Lowering, n: ast.For) -> dict[str, None]:
    """Return the names that loop n assigns, itself or by calls with arguments by reference.

    `+= -= &= |= ^=` count only if the loop reads the name, or for a struct.
    """
    nodes = events_in(cx.act.source, n)
    found = assigned_here(n, nodes)
    for x in nodes:
        if isinstance(x, ast.Call):
            found |= dict.fromkeys(names_assigned_by(cx, x))
        elif isinstance(x, ast.AugAssign) and isinstance(peek(cx, x.target), StructValue):
            found |= dict.fromkeys(bottom_names(x.target))
    return found


def assigned_here(n: ast.AST, nodes: Iterable[ast.AST]) -> dict[str, None]:
    """Return the names that statements among these nodes of a loop or function assign.

    `+= -= &= |= ^=` of a name, or of a part of it, count only if the loop or function reads it.
    """
    found: dict[str, None] = {}
    read = names_read(n)
    for x in nodes:
        if isinstance(x, ast.AugAssign) and isinstance(x.op, _COMBINED):
            found |= dict.fromkeys([name for name in assigned_by(x) if name in read])
            continue
        if isinstance(x, Assignment):
            found |= dict.fromkeys(assigned_by(x))
    return found


def names_read(n: ast.AST) -> set[str]:
    """Return the names that a loop or function reads.

    The `v` of a target `v[i]` is not read; its subscript is.
    """
    targets = {
        bottom
        for x in assignments_of(n)
        for target in targets_of(x)
        for bottom in bottom_nodes(target)
    }
    loads = (x for x in nodes_of(n, ast.Name) if isinstance(x.ctx, ast.Load))
    return {x.id for x in loads if x not in targets}


def names_assigned_by(cx: Lowering, n: ast.Call) -> Iterator[str]:
    """Yield the names that a call may assign through arguments by reference.

    The receiver of an unknown method counts too (`may_change_receiver`).
    """
    if callee_of(n, lambda x: peek(cx, x)) is None and may_change_receiver(n):
        yield from bottom_names(n.func)
    yield from changed_by(n, lambda x: peek(cx, x), ())


def changed_by(n: ast.Call, see: See, within: tuple[Any, ...]) -> Iterator[str]:
    """Yield the caller's names that a call may change by reference.

    `see` resolves expressions to compile-time objects. `within` are the functions on the call path.
    A callee that is unknown or in `within` gives no names.
    """
    callee = callee_of(n, see)
    if callee is None or callee in within:
        return
    signature = signature_of(callee)
    receiver: list[ast.expr] = []
    if isinstance(n.func, ast.Attribute) and is_bound(see(n.func)):
        receiver = [n.func.value]
    if is_callable_object(see(n.func)):
        receiver = [n.func]
    if any(isinstance(x, ast.Starred) for x in n.args):
        yield from changed_by_spread(n, callee, signature, receiver)
        return
    args = dict(zip(signature.names, [*receiver, *n.args]))
    args |= {k.arg: k.value for k in n.keywords if k.arg is not None}
    by_reference = signature.by_reference() | set(signature.names[: len(receiver)])
    changed = changed_parameters(callee, {k: see(x) for k, x in args.items()}, (*within, callee))
    for name, arg in args.items():
        if name in by_reference and name in changed:
            yield from bottom_names(arg)


def changed_by_spread(
    n: ast.Call, callee: FunctionType, signature: FunctionSignature, receiver: list[ast.expr]
) -> Iterator[str]:
    """Yield the names that a call with `*args` may change.

    Its arguments cannot be matched to parameters, so all count. There are none if the callee has no
    receiver and no parameters by reference, or assigns no names.
    """
    may_refer = receiver or signature.by_reference()
    if may_refer and changed_parameters(callee, {}, (callee,)):
        for x in (*receiver, *n.args, *[k.value for k in n.keywords]):
            yield from bottom_names(x)


def callee_of(n: ast.Call, see: See) -> FunctionType | None:
    """Return the function of a `ti.func`, real function or method of a struct that a call inlines.

    None for other callees, such as plain Python functions, and if it is not known.
    """
    callee = see(n.func)
    callee = kind_of(callee).called(callee)
    if callee is None or find_call(callee) is not None:
        return None
    is_inlined = function_kind(callee) not in (None, "kernel")
    return function_of(callee) if is_inlined else None


def is_bound(callee: Any) -> bool:
    return getattr(callee, "__self__", None) is not None


def may_change_receiver(n: ast.Call) -> bool:
    """True if n calls a method on an expression that contains a subscript or a call.

    `super().f()` is one. Names of vector methods are excluded. Precondition: the callee is unknown.
    """
    f = n.func
    if not isinstance(f, ast.Attribute) or f.attr in METHODS:
        return False
    return any(isinstance(x, ast.Subscript | ast.Call) for x in ast.walk(f.value))


def changed_parameters(
    fn: FunctionType, known: dict[str, Any], within: tuple[Any, ...]
) -> dict[str, None]:
    """Return the names that a function or its callees assign, its own variables included.

    `+= -= &= |= ^=` count only if the function reads the name. `known`: objects that the arguments
    denote. `within`: functions on the call path.
    """
    node, names = source_of(fn).node, referred_names(fn) | known

    def see(x: ast.expr) -> Any:
        return look_up(x, names.get)

    nodes = [*ast.walk(node)]
    found = assigned_here(node, nodes)
    for x in nodes:
        if isinstance(x, ast.Call):
            found |= dict.fromkeys(changed_by(x, see, within))
            if callee_of(x, see) is None and may_change_receiver(x):
                me = [a.arg for a in node.args.args[:1]] if calls_super(x) else []
                found |= dict.fromkeys([*bottom_names(x.func), *me])
    return found


def calls_super(n: ast.Call) -> bool:
    return "super" in map(name_in, ast.walk(n.func))


# --- privatization -------------------------------------------------------------------------------


def reads(n: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield the nodes that read a name; the target of `name += x` is one."""
    for x in ast.walk(n):
        read = x.target if isinstance(x, ast.AugAssign) else x
        if (
            isinstance(read, ast.Name)
            and read.id == name
            and (read is not x or isinstance(read.ctx, ast.Load))
        ):
            yield read


def is_flag(n: ast.For, name: str) -> bool:
    """True if a loop assigns one constant to a name, and nothing else, and never reads it.

    The order of iterations is then irrelevant.
    """
    values = {
        ast.dump(x.value) if isinstance(x.value, ast.Constant) else ""
        for x in assignments_of(n)
        if name in assigned_by(x)
    }
    return len(values) == 1 and "" not in values and not [*reads(n, name)]


def assigned_by(n: Assignment) -> list[str]:
    return [name for t in targets_of(n) for name in bottom_names(t)]


def why_carried(cx: Lowering, n: ast.For, name: str) -> CarriedVariable | None:
    """Return how a loop carries an assigned name between its iterations; None if it is private.

    It is private if each iteration is proved to assign the whole of it before reading it. Besides,
    `carried_out` must find no read outside of the loop.
    """
    found = carried_inside(n, name)
    if found is not None and found.node in [*reads(n, name)]:
        return found
    return carried_out(cx, n, name) or found


def carried_out(cx: Lowering, n: ast.For, name: str) -> CarriedVariable | None:
    """Return the first read of a name outside of loop n that may see the loop's value, or None.

    Reads before the loop count only if another loop contains n.
    """
    node = cx.act.source.node
    inside = set(reads(n, name))
    outside = [x for x in reads(node, name) if x not in inside]
    is_once = not any(n in ast.walk(x) for x in ast.walk(node) if is_loop(x) and x is not n)
    end = (n.end_lineno or 0, n.end_col_offset or 0)
    for x in outside:
        if not is_once or (x.lineno, x.col_offset) >= end:
            return CarriedVariable(name, x, "after", f"line {{line}} reads `{name}` after the loop")
    return None


def carried_inside(n: ast.For, name: str) -> CarriedVariable | None:
    """Return the use of a name by which a loop may carry it from one iteration to the next.

    None if each iteration is proved to assign the whole of it before reading it.
    """
    touched: ast.AST | None = None  # an assignment, perhaps not in every iteration
    for s in n.body:
        if touched is None and is_whole(s, name):
            return None
        node = next(reads(s, name), None)
        if node is not None:
            is_sure = touched is None and reads_first(s, name)
            verb = "reads" if is_sure else "may read"
            sentence = f"line {{line}} {verb} `{name}` of the previous iteration"
            update = update_of(n, s, name)
            return CarriedVariable(
                name, node, "reduction" if update else "inside", sentence, update
            )
        uses = (x for x in nodes_of(s, ast.Name) if x.id == name)
        touched = touched or next(uses, None)
    sentence = f"line {{line}} assigns `{name}` in some iterations only"
    return CarriedVariable(name, touched or n, "inside", sentence)


def is_whole(s: ast.stmt, name: str) -> bool:
    """True if a statement assigns the whole of a name, alone or in a tuple, and does not read
    it."""
    if isinstance(s, ast.AnnAssign) and s.value is not None:
        targets: list[ast.expr] = [s.target]
    else:
        targets = s.targets if isinstance(s, ast.Assign) else []
    if len(targets) != 1 or [*reads(s, name)]:
        return False
    (target,) = targets
    return name in map(name_in, items_in(target))


def reads_first(s: ast.stmt, name: str) -> bool:
    """True if a statement reads a name before it assigns it.

    For a compound statement, its header and then the first inner statement that uses the name
    decide.
    """
    for part in ("test", "iter", "items"):
        parts = getattr(s, part, [])
        if any([*reads(x, name)] for x in (parts if isinstance(parts, list) else [parts])):
            return True
    inner = [*getattr(s, "body", []), *getattr(s, "orelse", [])]
    for x in inner:
        if name in map(name_in, ast.walk(x)):
            return reads_first(x, name)
    return not inner and bool([*reads(s, name)])


ATOMIC = {
    ast.Add: "{name} += ...", ast.Sub: "{name} -= ...", ast.Mult: "ti.atomic_mul({name}, ...)",
    ast.BitAnd: "{name} &= ...", ast.BitOr: "{name} |= ...", ast.BitXor: "{name} ^= ...",
}  # fmt: skip


def update_of(n: ast.For, s: ast.stmt, name: str) -> str:
    """Return the source of an atomic update that could replace statement s, such as `x += ...`.

    "" if there is none, or if the loop reads the name in another statement.
    """
    if any([*reads(x, name)] for x in n.body if x is not s):
        return ""
    if len([*reads(s, name)]) != 1:
        return ""
    if isinstance(s, ast.AugAssign) and name_in(s.target):
        return ATOMIC.get(type(s.op), "").format(name=name)
    if not isinstance(s, ast.Assign) or name_in(s.targets[0]) != name:
        return ""
    value = s.value
    if isinstance(value, ast.BinOp):
        sides = [value.left, value.right] if not isinstance(value.op, ast.Sub) else [value.left]
        is_side = name in map(name_in, sides)
        return ATOMIC.get(type(value.op), "").format(name=name) if is_side else ""
    if isinstance(value, ast.Call) and len(value.args) == 2:
        word = ast.unparse(value.func).rpartition(".")[2]
        is_side = name in map(name_in, value.args)
        return f"ti.atomic_{word}({name}, ...)" if word in ("min", "max") and is_side else ""
    return ""
