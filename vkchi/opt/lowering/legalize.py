"""Legalization: expand ops that the device lacks into ops that it supports.

A row of `ROWS` names op kinds, scalar types, memory spaces, the capability needed, and the
expansion used without it. A row whose capability the device has is skipped, so native instructions
are preferred. Rows apply to tensors too. Elementwise expansions, and atomics on private memory,
work on whole tensors; other atomics are first split into components. If there is no expansion,
DeviceError is raised.

Expansions:

- atomics: a compare-and-swap loop, on the containing word for types below 32 bits;
- atomics on private memory: load and store;
- subgroup exchanges of other widths, and reductions of narrow types: those of 32 bits;
- subgroup scans: shuffles (`subgroups`);
- functions of f64 and some of f32: arithmetic; of f16, and all of bf16: those of f32
  (`functions`);
- integral quotients and remainders of floats (`functions`);
- bit counts of widths other than 32: those of 32 bits (`functions`).

    >>> legalize(fn, caps)      # atomic_mul p, v -> while { ... atomic_cas p, old, old * v ... }
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from importlib import import_module

from vkchi.errors import CompilationError, DeviceError, SubgroupWarning, warn_at
from vkchi.ir.builder import Builder, emit_cas_loop, updated_value
from vkchi.ir.core import Func, Op, Param, Value, base_memory, walk
from vkchi.ir.num import Num
from vkchi.ir.op_table.invocation_ops import ARITHMETIC, EXCHANGING, SPANS
from vkchi.ir.ops import (
    ATOMICS,
    EQUALITIES,
    TABLE,
    UPDATES,
    Effect,
    Trait,
    carried_params,
    control_of,
    initial_values,
    is_loop,
    kinds_with,
)
from vkchi.ir.rebuild import rebuild
from vkchi.opt.memo import Memo
from vkchi.span import Span
from vkchi.target.caps import Caps
from vkchi.target.remarks import Decision, Log, record
from vkchi.tuples import NamedTuple
from vkchi.types import (
    SCALARS,
    Array,
    Ptr,
    Scalar,
    Tensor,
    Type,
    bf16,
    scalar_of,
    u1,
    u32,
)

Args = tuple[Value, ...]
Expand = Callable[[Builder, Op, Args], Value]
Key = tuple[str, str, str]  # op kind, scalar type, memory space or ""


class LegalizationRow(NamedTuple):
    """One expansion.

    `needs` names Caps fields separated by `|`; a device with any of them skips the row. "never"
    means that all devices need the expansion.
    """

    kinds: str
    types: str
    needs: str
    expand: Expand
    spaces: str = ""


EMULATED = "the device lacks the operation, so that it is a loop of compare-and-swap"


def legalize(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Expand all ops that the device lacks. Records the atomics on arrays in the log of `memo`.

    Raises DeviceError, with the source line, for types and ops that are neither available nor
    expandable, and for too much shared memory. Warns of subgroup exchanges out of range.
    """
    table, memo = expansions(caps), memo or Memo()
    check_types(fn, caps, table.types)
    if memo.has(fn, ("shared",)):
        check_shared(fn, caps)
    if memo.has(fn, EXCHANGING):
        check_exchanges(fn, caps)
    found = find_expansions(fn, table, memo)
    if memo.log is not None:
        note_atomics(fn, found, memo.log)
    if not found:
        return fn

    def visit(b: Builder, op: Op, args: Args) -> Sequence[Value] | None:
        expand = found.get(op)
        return None if expand is None else [expand(b, op, args)]

    return rebuild(fn, visit, {op.kind for op in found})


def note_atomics(fn: Func, found: dict[Op, Expand], log: Log) -> None:
    """Record the atomics on array parameters, with the reason if they are emulated."""
    for op in walk(fn.body):
        base = base_memory(op.args[0]) if op.kind in UPDATES else None
        if isinstance(base, Param):
            reason = EMULATED if found.get(op) in (expand_swap, expand_word) else ""
            record(log, Decision("atomic", op.span, reason, name=base.name))


def find_expansions(fn: Func, table: Expansions, memo: Memo) -> dict[Op, Expand]:
    """Return the expansion of each op to expand."""
    kinds = table.kinds
    ops = walk(fn.body) if memo.has(fn, kinds) else ()
    keys = [(op, expansion_key(op)) for op in ops if op.kind in kinds]
    found = {op: table[key] for op, key in keys if key in table}
    if not MAY_BE_WHOLE.isdisjoint(op.kind for op in found):
        seen = values_seen_whole(fn)
        found = {
            op: e for op, e in found.items()
            if op.kind not in MAY_BE_WHOLE or op in seen or scalar_of(op.type) is bf16
        }  # fmt: skip
    swapped = arrays_swapped(fn, table) if memo.has(fn, ("shared",)) else ()
    if swapped:
        atomics = (op for op in walk(fn.body) if op.kind in ATOMICS)
        found.update((op, expand_swap) for op in atomics if base_memory(op.args[0]) in swapped)
    return found


def arrays_swapped(fn: Func, table: dict[Key, Expand]) -> set[Value]:
    """Return the workgroup arrays of floats with an exchange, a compare-and-swap, or an atomic that
    is expanded to a compare-and-swap.

    `lower_access` stores them as integers, so all their atomics must be expanded.
    """
    found: set[Value] = set()
    for op in walk(fn.body):
        if op.kind in UPDATES and expansion_key(op)[2] == "shared":
            is_bitwise = op.kind not in ATOMICS or table.get(expansion_key(op)) is expand_swap
            if is_bitwise and expansion_key(op)[1] in ("f32", "f64"):
                found.add(base_memory(op.args[0]))
    return found


# Expanded only if an exact integral result is observable; otherwise the native op suffices, which
# bf16 does not have.
MAY_BE_WHOLE = frozenset({"div", "sqrt"})
ROUNDING = kinds_with(Trait.ROUNDS) | EQUALITIES
PASSED_ON = kinds_with(Trait.CARRIES)


def values_seen_whole(fn: Func) -> set[Value]:
    """Return the values for which an exact integral result is observable (backward data-flow
    analysis).

    These are rounded, cast to integers or compared for equality. The property propagates through
    ops with trait CARRIES, such as selects and negation, through results of `if`s and loops, and
    through loop-carried values, but not through memory.
    """
    seen: set[Value] = set()
    ops = list(walk(fn.body))
    flows = [flow for op in ops if op.regions for flow in value_flows(op)]
    while True:
        count = len(seen)
        for op in reversed(ops):
            is_number = op.kind == "cast" and scalar_of(op.type).kind in "iu"
            if op.kind in ROUNDING or is_number or (op.kind in PASSED_ON and op in seen):
                seen.update(op.args)
        for targets, sources in reversed(flows):
            if not seen.isdisjoint(targets):
                seen.update(sources)
        if len(seen) == count or not flows:
            return seen


def value_flows(op: Op) -> Iterator[tuple[list[Value], list[Value]]]:
    """Yield the values that an `if` or loop merges: targets, and the values that reach them.

    Targets are a result and the parameters of its carried value; sources are the initial value and
    the yielded ones.
    """
    yields = [list(r.yielded) for r in op.regions]
    if not is_loop(op):
        for k, result in enumerate(op.results):
            yield [result], [values[k] for values in yields if k < len(values)]
        return
    tests = control_of(op).tests
    for k, (param, initial) in enumerate(zip(carried_params(op), initial_values(op), strict=True)):
        targets: list[Value] = [param]
        if k < len(op.results):
            targets.append(op.results[k])
        if tests:
            targets.append(op.regions[0].params[k])
        yield targets, [initial, *yields[-1][k : k + 1]]


def expansion_key(op: Op) -> Key:
    """Return the key of an op in the table. The type of the first argument decides, or that of the
    result if there are no arguments."""
    t = op.args[0].type if op.args else op.type
    if isinstance(t, Ptr):
        return op.kind, scalar_of(t.elem).name, t.space
    return op.kind, t.name if isinstance(t, Scalar) else scalar_of(t).name, ""


class Expansions(dict[Key, Expand]):
    """Expansions for one device.

    `kinds` holds their op kinds, `types` the scalar types that the device lacks.
    """

    kinds: frozenset[str]
    types: frozenset[Scalar]


@lru_cache(maxsize=16)
def expansions(caps: Caps) -> Expansions:
    """Return the expansions that a device needs. The first row for a key wins. Cached."""
    table = Expansions()
    for row in ROWS:
        if row.needs != "never" and any(getattr(caps, need) for need in row.needs.split("|")):
            continue
        for kind in row.kinds.split():
            for name in row.types.split():
                for space in row.spaces.split() or [""]:
                    table.setdefault((kind, name, space), row.expand)
    table.kinds = frozenset(kind for kind, _, _ in table)
    table.types = frozenset(t for t in SCALARS.values() if not caps.has_type(t.name))
    return table


# --- unsupported types and ops -------------------------------------------------------------------


def check_types(fn: Func, caps: Caps, lacking: Collection[Scalar]) -> None:
    """Raise DeviceError at the first value, or stored array, of a type that the device lacks."""
    for p in fn.params:
        t = p.type
        if isinstance(t, Array) and not caps.can_store(t.stored.name):
            raise lacking_type(t.stored, fn.span, f"array `{p.name}`")
        if isinstance(t, Scalar | Tensor) and not caps.has_type(scalar_of(t).name):
            raise lacking_type(scalar_of(t), fn.span, f"argument `{p.name}`")
    if not lacking:
        return
    for op in walk(fn.body):
        for v in op.results:
            elem = _scalar(v.type)
            if elem in lacking:
                raise lacking_type(elem, op.span)


def check_shared(fn: Func, caps: Caps) -> None:
    """Raise DeviceError if the arrays of a workgroup exceed the device's shared memory."""
    arrays = [op for op in walk(fn.body) if op.kind == "shared"]
    need_spare = {op.args[0] for op in walk(fn.body) if op.kind == "elem" and op.attr != "inbounds"}
    updated = {base_memory(op.args[0]) for op in walk(fn.body) if op.kind in UPDATES}
    needed = sum(
        shared_bytes(op, has_spare=op in need_spare, has_atomics=op in updated) for op in arrays
    )
    if needed > caps.shared_bytes:
        sentence = (
            f"the shared arrays of a workgroup take {needed} bytes, and this device has "
            f"{caps.shared_bytes}"
        )
        raise DeviceError(render(sentence, arrays[-1].span, "make them smaller"))


BEYOND = (
    "it finds any value, or the invocation's own; go as far as ti.simt.subgroup.group_size() says"
)


def check_exchanges(fn: Func, caps: Caps) -> None:
    """Warn (SubgroupWarning) of exchanges proved to address lanes beyond the device's subgroup
    size.

    This is no error, because the result may be unused, as in a scan that tests the lane afterwards.
    """
    from vkchi.opt.lowering.subgroups import out_of_range_exchanges  # rarely needed

    size = caps.subgroup_size
    said: dict[tuple[str, int, str], None] = {}  # in order
    for op, (least, most) in out_of_range_exchanges(fn, size):
        if op.span is not None:
            name, more = op.kind.removeprefix("subgroup_"), "" if least == most else " or more"
            text = f"{name} of {least}{more} goes beyond this device's subgroups of {size}"
            said[op.span.file, op.span.line, f"{text}: {BEYOND}"] = None
    for file, line, text in said:
        warn_at(text, SubgroupWarning, file, line)


def shared_bytes(op: Op, *, has_spare: bool, has_atomics: bool) -> int:
    """Return the size of a workgroup array in bytes, with one more element if `has_spare`.

    A bool takes four bytes. So does a scalar below 32 bits in an array with atomics, which are on
    words.
    """
    t = op.type
    assert isinstance(t, Array) and t.shape is not None
    elem = scalar_of(t.elem)
    count = (math.prod(t.shape) + has_spare) * t.scalars_per_element
    return count * (4 if elem is u1 else max(elem.size_bytes, 4 if has_atomics else 1))


def _scalar(t: Type) -> Scalar:
    inner = t.elem if isinstance(t, Ptr | Array) else t
    return scalar_of(inner)


INSTEAD = {"f": "ti.f32", "i": "ti.i32", "u": "ti.u32", "b": "ti.i32"}


def lacking_type(t: Scalar, span: Span | None, what: str = "") -> DeviceError:
    sentence = f"{t} is not available on this device" + (f" ({what})" if what else "")
    return DeviceError(render(sentence, span, f"use {INSTEAD[t.kind]}, or another device"))


def render(sentence: str, span: Span | None, help: str) -> str:
    return str(CompilationError(sentence, span, help=help))


def refuse_wide_atomic(b: Builder, op: Op, args: Args) -> Value:
    _, name, space = expansion_key(op)
    where_ = "shared arrays" if space == "shared" else "arrays"
    raise DeviceError(
        render(
            f"atomic operations on {name} in {where_} are not available on this device",
            op.span,
            f"use {INSTEAD[SCALARS[name].kind]}, or another device",
        )
    )


def refuse_subgroup(b: Builder, op: Op, args: Args) -> Value:
    name = op.kind.removeprefix("subgroup_")
    raise DeviceError(
        render(f"subgroup {name} is not available on this device", op.span, "use another device")
    )


def refuse_wide_subgroup(b: Builder, op: Op, args: Args) -> Value:
    name = op.kind.removeprefix("subgroup_")
    sentence = f"subgroup {name} of {op.type} is not available on this device"
    raise DeviceError(render(sentence, op.span, "use 32 bits, or another device"))


def refuse_ballot(b: Builder, op: Op, args: Args) -> Value:
    sentence = "subgroups of this device have more invocations than a ballot's 32 bits"
    raise DeviceError(render(sentence, op.span, "use ti.simt.subgroup.ballot64"))


def refuse_wide_ballot(b: Builder, op: Op, args: Args) -> Value:
    sentence = "this device has no 64-bit integers, or larger subgroups than a ballot's 64 bits"
    raise DeviceError(render(sentence, op.span, "use ti.simt.subgroup.all_true or any_true"))


def refuse_function(b: Builder, op: Op, args: Args) -> Value:
    raise DeviceError(
        render(
            f"{op.kind} of f64 needs 64-bit integers, which this device lacks",
            op.span,
            "use ti.f32, or another device",
        )
    )


# --- atomics -------------------------------------------------------------------------------------


def combined_value(b: Builder, op: Op, old: Value, args: Args) -> Value:
    return updated_value(b, op.kind, old, args[1:])


def expand_private(b: Builder, op: Op, args: Args) -> Value:
    old = b.emit("load", args[0])
    b.emit("store", args[0], combined_value(b, op, old, args))
    return old


def expand_swap(b: Builder, op: Op, args: Args) -> Value:
    if isinstance(args[1].type, Tensor):
        return by_components(b, op, args, expand_swap)
    return emit_cas_loop(b, args[0], lambda old: combined_value(b, op, old, args))


def expand_word(b: Builder, op: Op, args: Args) -> Value:
    """Expand an atomic on a narrow scalar to a compare-and-swap loop on its word.

    A concurrent store to another scalar of the word makes the swap fail; the next attempt sees it.
    """
    t = args[1].type
    if isinstance(t, Tensor):
        return by_components(b, op, args, expand_word)
    assert isinstance(t, Scalar)
    shift = Num(b, b.emit("word_shift", args[0]))
    ones = (1 << max(t.bits, 8)) - 1  # a bool is a byte

    def replaced(word: Value) -> Value:
        old = number_in(Num(b, word), shift, t)
        new = bits_in_word(Num(b, combined_value(b, op, old.v, args)), t) << shift
        return ((Num(b, word) & ~(shift.number(ones) << shift)) | new).v

    last = emit_cas_loop(b, b.emit("word", args[0]), replaced)
    return number_in(Num(b, last), shift, t).v


def number_in(word: Num, shift: Num, t: Scalar) -> Num:
    low = word >> shift
    if t is u1:
        return (low & 255).cast(u1)
    return low.cast(SCALARS[f"u{t.bits}"]).bits(t)


def bits_in_word(x: Num, t: Scalar) -> Num:
    return x.cast(u32) if t is u1 else x.bits(SCALARS[f"u{t.bits}"]).cast(u32)


def by_components(b: Builder, op: Op, args: Args, expand: Expand) -> Value:
    """Call `expand` for each component of an atomic on a tensor, and return the tensor of its
    results. An atomic on a scalar is passed to `expand` as it is."""
    t, olds = args[1].type, []
    if not isinstance(t, Tensor):
        return expand(b, op, args)
    for k in range(t.size):
        place = b.emit("member", args[0], attr=k)
        values = [b.emit("extract", v, attr=k) for v in args[1:]]
        olds.append(expand(b, op, (place, *values)))
    return b.emit("pack", *olds, type=t)


# --- the table -----------------------------------------------------------------------------------


def late(where: str) -> Expand:
    """Return an expansion that imports the function at `where` (`module:function`) when it is
    called."""
    module, _, name = where.partition(":")

    def expand(b: Builder, op: Op, args: Args) -> Value:
        made: Value = getattr(import_module(f"vkchi.opt.{module}"), name)(b, op, args)
        return made

    return expand


ANY = " ".join(SCALARS)
ALL_ATOMICS = " ".join(sorted(UPDATES))
OTHER_ATOMICS = ALL_ATOMICS.replace("atomic_add ", "")
INTEGERS = "i32 u32 i64 u64"
NARROW = "i8 u8 i16 u16 f16 bf16 u1"
WIDE = "i64 u64 f64"
# Functions that `functions` expands to arithmetic: of f64, integral quotients, of f32.
OF_F64 = " ".join(sorted(kinds_with(Trait.FORMULA_F64)))
QUOTIENTS = "floordiv mod rem"
# Functions of floats, by component.
OF_FLOATS = " ".join(
    sorted(k for k, row in TABLE.items() if row.sig.startswith(("T:float", "T:num"))
           and row.effect is Effect.PURE and not row.sig.startswith("T:num.tensor"))
)  # fmt: skip
OF_F32 = " ".join(sorted(kinds_with(Trait.FORMULA_F32)))
BOTH = "global shared"
REDUCTIONS = " ".join(f"subgroup_{span}{name}" for span in SPANS for name in ARITHMETIC)
# Scans that a translation to another shading language may lack.
SCANS = " ".join(
    f"subgroup_{span}{name}"
    for span in SPANS
    for name in ARITHMETIC
    if span and name not in ("add", "mul")
)
RELATIVE = "subgroup_shuffle_up subgroup_shuffle_down"
ANYWHERE = "subgroup_shuffle subgroup_shuffle_xor"
SENT = "subgroup_broadcast subgroup_first"
EXCHANGES = f"{RELATIVE} {ANYWHERE} {SENT}"
VOTES = "subgroup_all subgroup_any subgroup_all_equal"

ROWS: tuple[LegalizationRow, ...] = (
    LegalizationRow(ALL_ATOMICS, ANY, "never", expand_private, "local"),
    LegalizationRow(ALL_ATOMICS, NARROW, "never", expand_word, BOTH),
    LegalizationRow(
        "atomic_add", "f64", "f64_atomic_add|i64_atomics", refuse_wide_atomic, "global"
    ),
    LegalizationRow("atomic_add", "f64", "f64_atomic_add", expand_swap, "global"),
    LegalizationRow(OTHER_ATOMICS, WIDE, "i64_atomics", refuse_wide_atomic, "global"),
    LegalizationRow("atomic_add", "i64 u64", "i64_atomics", refuse_wide_atomic, "global"),
    LegalizationRow(ALL_ATOMICS, WIDE, "i64_atomics_shared", refuse_wide_atomic, "shared"),
    LegalizationRow("atomic_mul", f"{INTEGERS} f32 f64", "never", expand_swap, BOTH),
    LegalizationRow("atomic_add", "f32", "f32_atomic_add", expand_swap, "global"),
    LegalizationRow("atomic_add", "f32", "f32_atomic_add_shared", expand_swap, "shared"),
    LegalizationRow("atomic_min atomic_max", "f32", "f32_atomic_minmax", expand_swap, "global"),
    LegalizationRow("atomic_min atomic_max", "f32", "never", expand_swap, "shared"),
    LegalizationRow("atomic_add", "f64", "never", expand_swap, "shared"),
    LegalizationRow("atomic_min atomic_max", "f64", "never", expand_swap, BOTH),
    LegalizationRow(OF_F64, "f64", "int64", refuse_function),
    LegalizationRow(OF_F64, "f64", "never", late("math.functions:expand_f64")),
    LegalizationRow(f"{OF_FLOATS} eq ne", "bf16", "never", late("math.functions:expand_bf16")),
    LegalizationRow("pow", "f32", "float64", late("math.functions:expand_f32")),
    LegalizationRow("pow", "f32", "never", late("math.functions:expand_power")),
    LegalizationRow(OF_F32, "f32", "never", late("math.functions:expand_f32")),
    LegalizationRow(f"{OF_F64} div sqrt", "f16", "never", late("math.functions:expand_f16")),
    LegalizationRow(QUOTIENTS, "f64", "int64", refuse_function),
    LegalizationRow(QUOTIENTS, "f32 f64", "never", late("math.functions:expand_quotient")),
    LegalizationRow(QUOTIENTS, "f16", "never", late("math.functions:expand_quotient_f16")),
    LegalizationRow("popcnt clz", "i64 u64", "never", late("math.functions:count_wide")),
    LegalizationRow("popcnt clz", "i8 u8 i16 u16", "never", late("math.functions:count_narrow")),
    LegalizationRow(REDUCTIONS, ANY, "subgroup_arithmetic", refuse_subgroup),
    LegalizationRow(REDUCTIONS, "i64 u64", "subgroup_wide", refuse_wide_subgroup),
    LegalizationRow(
        SCANS,
        ANY,
        "subgroup_scans|ballot_exceeds_word",
        late("lowering.subgroups:scan_by_shuffles"),
    ),
    LegalizationRow(SCANS, ANY, "subgroup_scans|ballot_fits_long", refuse_subgroup),
    LegalizationRow(SCANS, ANY, "subgroup_scans", late("lowering.subgroups:scan_wide_by_shuffles")),
    LegalizationRow(
        REDUCTIONS, NARROW.removesuffix(" u1"), "never", late("lowering.subgroups:reduce_narrow")
    ),
    LegalizationRow(RELATIVE, ANY, "subgroup_shuffle_relative", refuse_subgroup),
    LegalizationRow(ANYWHERE, ANY, "subgroup_shuffle", refuse_subgroup),
    LegalizationRow(
        f"{SENT} subgroup_ballot subgroup_ballot_wide warp_ballot",
        ANY,
        "subgroup_ballot",
        refuse_subgroup,
    ),
    LegalizationRow(VOTES, ANY, "subgroup_vote", refuse_subgroup),
    LegalizationRow("subgroup_ballot", "u1", "ballot_fits_word", refuse_ballot),
    LegalizationRow(
        "warp_ballot", "u1", "ballot_exceeds_word", late("lowering.subgroups:ballot_in_subgroup")
    ),
    LegalizationRow(
        "warp_ballot subgroup_ballot_wide", "u1", "ballot_fits_long", refuse_wide_ballot
    ),
    LegalizationRow("warp_ballot", "u1", "never", late("lowering.subgroups:ballot_in_half")),
    LegalizationRow(EXCHANGES, NARROW, "never", late("lowering.subgroups:exchange_narrow")),
    LegalizationRow(EXCHANGES, "i64 u64", "never", late("lowering.subgroups:exchange_wide")),
    LegalizationRow(
        "subgroup_all_equal", NARROW, "never", late("lowering.subgroups:compare_narrow")
    ),
    LegalizationRow(
        "subgroup_all_equal", "i64 u64", "never", late("lowering.subgroups:compare_wide")
    ),
)
