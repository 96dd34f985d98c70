"""`Tape(validation=True)`: element-wise detection of overwrites of elements read before."""

from __future__ import annotations

from typing import Any

from vkchi.autodiff.instrument import Instrumented, instrument_reads
from vkchi.autodiff.primal import name_under
from vkchi.calls.call import KernelCall
from vkchi.calls.variant import Variant
from vkchi.errors import DataAccessError
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func, Op, Param
from vkchi.ir.param_names import NOTED
from vkchi.launch.executable import Arrays
from vkchi.span import Span
from vkchi.tape.ledger import Account, Ledger
from vkchi.types import Array, i32

Read = tuple[str, Span | None]


def run_watched(call: KernelCall, ledger: Ledger, func: Func, own: Arrays) -> Any:
    """Run the kernel `func`, instrumented to watch arrays with a gradient; return its result.

    `own` are additional arrays of `func`. Raises DataAccessError, after the run, if the kernel
    overwrote an element that was read before.
    """
    plan = call.plan
    names = frozenset(n for n, a in call.arrays.items() if a.companion("grad") is not None)
    reads: list[Read] = plan.runtime.watched_reads  # numbered from 1

    def make() -> tuple[Instrumented, Variant]:
        made = instrument_reads(func, names, len(reads) + 1)
        reads.extend((call.name, op.span) for op in made.reads)
        return made, Variant(call, made.func)

    made, variant = plan.derived.find("watched", (names, func), make)
    noted = Storage(plan.runtime, i32, (max(1, len(made.ops)),))
    watching = {p.name: flags_of(ledger.open(call.arrays[name]), p)
                for name, p in made.shadows.items()}  # fmt: skip
    result = variant.run(call, {**call.arrays, **own, **watching, NOTED: noted})
    for op, number in zip(made.ops, noted.to_numpy()):
        if number:
            raise data_access_error(call, op, reads[number - 1])
    return result


def flags_of(account: Account, shadow: Param) -> Storage:
    """Return an array's shadow: for each scalar the number of a load that read it, or 0.

    Allocated at first use.
    """
    if account.flags is None:
        array, t = account.array, shadow.type
        assert isinstance(t, Array)
        account.flags = Storage(array.runtime, t.elem, array.shape, t.layout)
    return account.flags


def data_access_error(call: KernelCall, op: Op, read: Read) -> DataAccessError:
    reader, span = read
    return DataAccessError(
        f"(kernel={call.name}) breaks the global data access rule: an element of "
        f"`{name_under(op)}` that was read before is overwritten", op.span,
        notes=((f"{reader}() read it here", span),),
        help="leave out validation=True: elements may be overwritten then, and gradients are right",
    )  # fmt: skip
