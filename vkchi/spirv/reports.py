"""Report ops: records written into the buffer that `vkchi.reports.sites` lays out.

Owns: the three ways to claim room for a record (a cursor for lines, a bit per site for what is said
once, a few slots for failed checks), the words of values. Must not know: what sites say.

The buffer is an array of the launch that is no parameter of the Func; a shader without reports has
no slot for it. A failed check ends its invocation, unless others may wait for it at a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vkchi.ir.core import Op, has_kind
from vkchi.reports import sites
from vkchi.spirv import arith, spec
from vkchi.spirv.spec import MemoryAccess, Scope, Semantics, StorageClass
from vkchi.types import Scalar, f32, i32, scalar_of, u1, u32

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

WORD_BYTES = 4
FLAG_BITS = 32


def lower_report(em: Emitter, op: Op) -> None:
    """report_line, report_once, report_failure."""
    WAYS[op.kind](em, op.attr, record_of(em, op))


def record_of(em: Emitter, op: Op) -> list[int]:
    """The words of a record, as ids of u32 values."""
    words = [em.const(u32, op.attr + 1)]
    for v in op.args:
        t = scalar_of(v.type)
        for component in em.ids[v]:
            words += words_of(em, t, component)
    return words


def words_of(em: Emitter, t: Scalar, value: int) -> list[int]:
    """A number of type t as the words that carry it."""
    word = em.type_id(u32)
    if t.bits == 64:
        pair = em.op(spec.OpBitcast, em.m.type(spec.OpTypeVector, word, 2), value)
        return [em.op(spec.OpCompositeExtract, word, pair, k) for k in range(2)]
    carrier = {"f": f32, "i": i32}.get(t.kind, u32)
    wide = arith.convert(em, t, carrier, value)
    return [wide if carrier is u32 else em.op(spec.OpBitcast, word, wide)]


# --- claiming room -------------------------------------------------------------------------------


def write_line(em: Emitter, site: int, words: list[int]) -> None:
    """Append a record to the lines; where they are full, count it as lost."""
    word = em.type_id(u32)
    cursor = word_pointer(em, em.const(u32, sites.CURSOR))
    room = em.const(u32, sites.LINE_WORDS)
    size = em.const(u32, len(words))
    seen = em.op(spec.OpLoad, word, cursor, MemoryAccess.Aligned, WORD_BYTES)
    is_open = em.op(spec.OpULessThan, em.type_id(u1), seen, room)  # or the cursor would go round
    step = em.op(spec.OpSelect, word, is_open, size, em.const(u32, 0))
    at = atomic(em, spec.OpAtomicIAdd, cursor, step)
    end = em.op(spec.OpIAdd, word, at, size)
    fits = em.op(spec.OpULessThanEqual, em.type_id(u1), end, room)
    fits = em.op(spec.OpLogicalAnd, em.type_id(u1), fits, is_open)
    with branch(em, fits):
        store_words(em, em.op(spec.OpIAdd, word, at, em.const(u32, sites.LINES_AT)), words)
    with branch(em, em.op(spec.OpLogicalNot, em.type_id(u1), fits)):
        lost = word_pointer(em, em.const(u32, sites.LOST))
        atomic(em, spec.OpAtomicIAdd, lost, em.const(u32, 1))


def write_once(em: Emitter, site: int, words: list[int]) -> None:
    """Append a record to the lines if this launch has none of this site yet."""
    word, truth, zero = em.type_id(u32), em.type_id(u1), em.const(u32, 0)
    index, bit = divmod(site, FLAG_BITS)
    flag = word_pointer(em, em.const(u32, sites.FLAGS_AT + index % sites.FLAG_WORDS))
    mask = em.const(u32, 1 << bit)
    seen = em.op(spec.OpLoad, word, flag, MemoryAccess.Aligned, WORD_BYTES)
    is_new = em.op(spec.OpIEqual, truth, em.op(spec.OpBitwiseAnd, word, seen, mask), zero)
    with branch(em, is_new):
        before = atomic(em, spec.OpAtomicOr, flag, mask)
        is_first = em.op(spec.OpIEqual, truth, em.op(spec.OpBitwiseAnd, word, before, mask), zero)
        with branch(em, is_first):
            write_line(em, site, words)


def write_failure(em: Emitter, site: int, words: list[int]) -> None:
    """Keep the record if it is one of the first failures, count it, and end the invocation."""
    word = em.type_id(u32)
    count = word_pointer(em, em.const(u32, sites.FAILURES))
    slot = atomic(em, spec.OpAtomicIAdd, count, em.const(u32, 1))
    slots = em.const(u32, sites.FAILURE_SLOTS)
    with branch(em, em.op(spec.OpULessThan, em.type_id(u1), slot, slots)):
        at = em.op(spec.OpIMul, word, slot, em.const(u32, sites.FAILURE_WORDS))
        store_words(em, em.op(spec.OpIAdd, word, at, em.const(u32, sites.FAILURES_AT)), words)
    if not has_kind(em.fn.body, ("barrier",)):
        leave(em)


WAYS: dict[str, Callable[[Emitter, int, list[int]], None]] = {
    "report_line": write_line,
    "report_once": write_once,
    "report_failure": write_failure,
}


# --- instructions --------------------------------------------------------------------------------


def word_pointer(em: Emitter, index: int) -> int:
    """A pointer to a word of the buffer, in this block."""
    p_id = em.m.pointer(StorageClass.PhysicalStorageBuffer, em.stored_id(u32))
    base = em.arguments.reports()
    return em.op(spec.OpInBoundsAccessChain, p_id, base, em.index(0), index)


def atomic(em: Emitter, opcode: int, pointer: int, operand: int) -> int:
    """The word that stood there before."""
    scope, relaxed = em.const(u32, Scope.Device), em.const(u32, Semantics.Relaxed)
    return em.op(opcode, em.type_id(u32), pointer, scope, relaxed, operand)


def store_words(em: Emitter, at: int, words: list[int]) -> None:
    """Store words from index `at` on."""
    for k, value in enumerate(words):
        index = em.op(spec.OpIAdd, em.type_id(u32), at, em.const(u32, k)) if k else at
        em.act(spec.OpStore, word_pointer(em, index), value, MemoryAccess.Aligned, WORD_BYTES)


@contextmanager
def branch(em: Emitter, cond: int) -> Iterator[None]:
    """What is written inside happens where `cond` holds."""
    label, merge = em.m.new_id(), em.m.new_id()
    em.act(spec.OpSelectionMerge, merge, 0)
    em.act(spec.OpBranchConditional, cond, label, merge)
    em.begin_block(label)
    yield
    em.act(spec.OpBranch, merge)
    em.begin_block(merge)


def leave(em: Emitter) -> None:
    """End the invocation. Said as a branch that is always taken: so no block is unreachable."""
    label, merge = em.m.new_id(), em.m.new_id()
    em.act(spec.OpSelectionMerge, merge, 0)
    em.act(spec.OpBranchConditional, em.const(u1, 1), label, merge)
    em.begin_block(label)
    em.act(spec.OpReturn)
    em.begin_block(merge)
