"""What tapes and debug mode find out of a kernel and make of it, each once per plan.

Owns: `Derived`: the table of answers, which last (`cache.answers`), and a table for each kind of
thing that does not; how questions are asked: `facts` are those of `tape.questions`. A question is a
function of a plan and plain values, on which its answer depends, data like them; it reads IR, and
is loaded where the answer is not known yet. Must not know: IR, how anything is made.

    facts.touched(plan, "writes", case_of({"t": 3}, {"x": x}))        # {"x": ((3, 3), (0, 7))}
    call.plan.derived.gradients.find(spec, make)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vkchi.analysis.boxes import Shaped
from vkchi.autodiff.answers import GradientSpec
from vkchi.cache.answers import Answers
from vkchi.compiling import compiling
from vkchi.hooks import Place, load
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.analysis.footprint import Footprint
    from vkchi.autodiff.instrument import Instrumented
    from vkchi.autodiff.reaching import Outflows, Reach
    from vkchi.cache.compiled import Home
    from vkchi.ir.core import Func
    from vkchi.launch import Plan
    from vkchi.races.meeting import Races
    from vkchi.races.suspects import Candidates
    from vkchi.tape import questions as facts
    from vkchi.tape.gradients import Live
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.repeated_taped_calls import RepeatedTapedCall
    from vkchi.tape.traces import Node
    from vkchi.tape.variants import ForwardPlan, Variant

__all__ = ["Asked", "Case", "Derived", "Memo", "Names", "case_of", "facts"]
K = TypeVar("K")
V = TypeVar("V")
MOST_NOTES = 256  # of calls like one before
Names = frozenset[str]
# A call, as far as answers may depend on it: its integers and the shapes of its arrays, by names.
Case = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, tuple[int, ...]], ...]]


def case_of(numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> Case:
    """What answers may depend on of a call."""
    shapes = tuple([(name, array.shape) for name, array in arrays.items()])
    return tuple(numbers.items()), shapes


class Question(NamedTuple):
    """Where the function stands that answers it, the form of its answers (`cache.codec`: what its
    annotation says, which is not loaded), and whether it is about a call."""

    place: Place
    form: str
    is_of_call: bool


class Asked:
    """The questions of a module, under their names: the forms of their answers by these, of what is
    asked of the kernel, and of its calls."""

    def __init__(self, module: str, of_kernel: dict[str, str], of_calls: dict[str, str]) -> None:
        for forms in (of_kernel, of_calls):
            for name, form in forms.items():
                question = Question((module, name), form, forms is of_calls)
                setattr(self, name, partial(ask, question))


def ask(question: Question, plan: Plan, *about: Any) -> Any:
    """The answer to a question. Raises what finding it raises."""

    asked = (question.place[1], *about)
    try:
        return plan.derived.answers.known[asked]
    except KeyError:
        return find_out(question, plan, about, asked)


def find_out(question: Question, plan: Plan, about: tuple[Any, ...], asked: tuple[Any, ...]) -> Any:
    """The answer to a question that this process has not asked yet."""

    def answer() -> Any:
        with compiling(plan.derived.title):
            return load(question.place)(plan, *about)

    is_lasting = not any(map(does_warn, about))
    return plan.derived.answers.find(
        asked, question.form, answer, is_of_call=question.is_of_call, is_lasting=is_lasting
    )


def does_warn(about: object) -> bool:
    """Whether finding an answer may warn, and so must in each process."""
    request = about.request if isinstance(about, GradientSpec) else None
    return (request.missing if request is not None else about) == "warn"


if not TYPE_CHECKING:
    facts = Asked(
        "tape.questions",
        {
            "along": "Along", "arrays_used": "Names", "check_reached": "None",
            "depends_on_order": "bool", "differentiated": "Differentiated",
            "kinds_of_writes": "dict[str, frozenset[str]]", "marked": "Marked",
            "invariant": "Names | None", "stores_constants": "bool",
            "strip_mined": "Artifact | None",
        },
        {
            "covering": "int | None", "flow": "Flow", "outflow": "Outflow",
            "touched": "dict[str, Box]",
        },
    )  # fmt: skip


class Memo(Generic[K, V]):
    """Values by key, each made when it is first asked for."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.found: dict[K, V] = {}

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value under this key."""
        if key not in self.found:
            with compiling(self.title):
                self.found[key] = make()
        return self.found[key]


class Derived:
    """Tables by what the thing is for: mostly the arrays that have a gradient. `repeated` are kinds
    of calls, of which so many more are looked at; `traces` are of tapes that began with the kernel;
    `warned` is a registry of Python's warnings."""

    def __init__(self, title: str, home: Home | None) -> None:
        self.title, self.answers = title, Answers(home)
        # By `id` of arguments that are objects.
        self.repeated: dict[tuple[int, ...], RepeatedTapedCall] = {}
        self.notes_left = MOST_NOTES
        self.traces: Node | None = None
        self.footprints: Memo[str, Footprint] = Memo(title)
        self.gradients: Memo[GradientSpec, GradientPlan] = Memo(title)
        self.live: Memo[GradientSpec, Live] = Memo(title)
        self.forward: Memo[tuple[str, Names], ForwardPlan] = Memo(title)
        self.outflows: Memo[Names, Outflows] = Memo(title)
        self.marked: Memo[tuple[GradientSpec | None, Names, Names], Variant] = Memo(title)
        self.watched: Memo[tuple[Names, Func], tuple[Instrumented, Variant]] = Memo(title)
        self.races: Memo[tuple[GradientSpec | None, Names, bool], Races] = Memo(title)
        self.races_in_run: Memo[tuple[Func, Names, GradientSpec | None, bool], Races] = Memo(title)
        self.reach: Memo[None, Reach] = Memo(title)
        self.suspects: Memo[None, Candidates] = Memo(title)
        self.watch: Memo[tuple[tuple[str, str], ...], Races] = Memo(title)
        self.warned: dict[Any, Any] = {}
