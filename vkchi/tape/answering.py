"""Who answers what `facts` asks: loaded where an answer is not known yet.

Owns: the table of questions. Must not know: what they mean.

    answer("may_race", plan, spec, names, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.races import meeting
from vkchi.tape import questions

if TYPE_CHECKING:
    from vkchi.launch import Plan

QUESTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (*questions.ANSWERING, *meeting.ANSWERING)
}


def answer(question: str, plan: Plan, *about: Any) -> Any:
    """The answer to a question. Raises what finding it raises."""
    return QUESTIONS[question](plan, *about)
