"""Forms of IR at the borders of the pipeline's stages: rules that a stage requires or guarantees.

The verifier (`ir.verify`) checks rules that hold everywhere. A form states what holds only from
one border on: its own rules, and those of its base form. With `VKCHI_VERIFY`, the pipeline checks
the form behind each stage.

    check_form(fn, "Mapped", caps, "behind stage `mapping`")

There is no rule on nesting: `limit_nesting` cannot divide loops, and the compiler raises an error
for loops that nest too deeply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vkchi.analysis.values.host_numbers import axis_length, listed_count
from vkchi.errors import InternalError
from vkchi.ir.core import Func, Op, walk, walk_ops
from vkchi.ir.ops import LOOPS, PLACES, READS, WRITES, Effect, Trait, axes_of, effect_of, kinds_with
from vkchi.opt.lowering.legalize import expansions, find_expansions
from vkchi.opt.memo import Memo
from vkchi.opt.memory.demote import private_atomics, surveys_of
from vkchi.opt.rewrite.bounds import find_provable
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import i32

UNSPLIT = (Effect.WRITE, Effect.ATOMIC, Effect.REPORT, Effect.SYNC)
LOWERED, MACHINE = kinds_with(Trait.LOWERED), kinds_with(Trait.MACHINE)
# The expansion of such an op contains the op.
KEPT = frozenset({"div", "exp2", "log2", "pow", "sqrt"})


class Rule(NamedTuple):
    """A rule of a form.

    - `words`: the rule.
    - `find`: returns ops that violate it.
    - `by`: the optional pass without which it need not hold, or "".
    """

    words: str
    find: Callable[[Func, Caps], Iterable[Op]]
    by: str = ""


class Form(NamedTuple):
    """A form: the form that it extends, or "", and further rules."""

    base: str
    rules: tuple[Rule, ...]


def check_form(
    fn: Func, name: str, caps: Caps, place: str, missing: frozenset[str] = frozenset()
) -> None:
    """Raise InternalError for the first op that violates the form `name`, or a form that it
    extends.

    `place` is named in the message. Rules of passes in `missing`, which did not run, are skipped.
    """
    for rule, op in violations(fn, name, caps, missing):
        where = f", {op.span.place}" if op.span is not None else ""
        raise InternalError(
            f"{place}, `{fn.name}` is not in form {name}: {rule.words}; `{op.kind}` violates it"
            f"{where}"
        )


def violations(
    fn: Func, name: str, caps: Caps, missing: frozenset[str] = frozenset()
) -> Iterator[tuple[Rule, Op]]:
    form = FORMS[name]
    if form.base:
        yield from violations(fn, form.base, caps, missing)
    for rule in form.rules:
        if rule.by not in missing:
            for op in rule.find(fn, caps):
                yield rule, op


# --- rules ---------------------------------------------------------------------------------------


def loops_of(fn: Func) -> list[Op]:
    return [op for op in fn.body.ops if op.kind == "parallel"]


def loops_with_wide_axes(fn: Func, caps: Caps) -> Iterator[Op]:
    return (op for op in loops_of(fn) if any(axis.param.type is not i32 for axis in axes_of(op)))


def loops_with_grids(fn: Func, caps: Caps) -> Iterator[Op]:
    return (op for op in loops_of(fn) if isinstance(op.attr, tuple))


def machine_places(fn: Func, caps: Caps) -> Iterator[Op]:
    return (op for op in walk(fn.body) if op.kind in MACHINE)


def further_loops(fn: Func, caps: Caps) -> list[Op]:
    return loops_of(fn)[1:]


def effects_beside_loops(fn: Func, caps: Caps) -> Iterator[Op]:
    beside = [op for op in fn.body.ops if op.kind != "parallel"] if loops_of(fn) else []
    return (op for op in walk_ops(beside) if effect_of(op.kind) in UNSPLIT or op.kind in LOOPS)


def plain_atomics(fn: Func, caps: Caps) -> Iterator[Op]:
    return (write.op for survey in surveys_of(fn) for write in private_atomics(survey))


def unmarked_accesses(fn: Func, caps: Caps) -> Iterator[Op]:
    return (op for op in find_provable(fn) if op.kind == "elem")


def unmapped_loops(fn: Func, caps: Caps) -> Iterator[Op]:
    for op in loops_of(fn):
        sizes = op.attr if isinstance(op.attr, tuple) else (op.attr,)
        if None in sizes or len(sizes) != len(axes_of(op)):
            yield op


def loops_of_unknown_length(fn: Func, caps: Caps) -> Iterator[Op]:
    unknown = [op for op in loops_of(fn) if None in map(axis_length, axes_of(op))]
    return (op for op in unknown if listed_count(op) is None)


def unsupported_ops(fn: Func, caps: Caps) -> Iterator[Op]:
    return (op for op in find_expansions(fn, expansions(caps), Memo()) if op.kind not in KEPT)


def ops_to_lower(fn: Func, caps: Caps) -> Iterator[Op]:
    """Ops of the trait LOWERED, except the `elem`s of workgroup arrays."""
    return (
        op
        for op in walk(fn.body)
        if op.kind in LOWERED and not (op.kind == "elem" and is_machine_place(op))
    )


def accesses_of_elements(fn: Func, caps: Caps) -> Iterator[Op]:
    accesses = (op for op in walk(fn.body) if op.kind in READS | WRITES)
    return (op for op in accesses if not is_machine_place(op.args[0]))


def is_machine_place(v: object) -> bool:
    """True for an address or word, and for a place in private or workgroup memory."""
    while isinstance(v, Op) and v.kind in PLACES - MACHINE:
        v = v.args[0]
    return isinstance(v, Op) and (v.kind in MACHINE or effect_of(v.kind) is Effect.ALLOC)


FORMS = {
    "Source": Form(
        "",
        (
            Rule("the axes of a `parallel` are i32", loops_with_wide_axes),
            Rule("a `parallel` has no grid yet", loops_with_grids),
            Rule("places are elements, not addresses or words", machine_places),
        ),
    ),
    "Dispatch": Form(
        "Source",
        (
            Rule("a Func has one `parallel` at most", further_loops),
            Rule("ops beside a `parallel` have no loops and no effects", effects_beside_loops),
        ),
    ),
    "Reduced": Form(
        "Dispatch",
        (Rule("no invocation has an element of its own that it updates atomically",
              plain_atomics, "demote_all"),),
    ),
    "Mapped": Form(
        "",
        (
            Rule("a `parallel` has a workgroup size for each axis", unmapped_loops),
            Rule("the host can compute the length of each axis", loops_of_unknown_length),
            Rule("accesses that are provably in range are marked", unmarked_accesses),
        ),
    ),
    "Machine": Form(
        "",
        (
            Rule("the device supports all ops", unsupported_ops),
            Rule("ops of the trait LOWERED are expanded", ops_to_lower),
            Rule("accesses are to addresses, words, private or workgroup memory",
                 accesses_of_elements),
        ),
    ),
}  # fmt: skip
