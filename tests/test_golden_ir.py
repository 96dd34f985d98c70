"""Golden files of IR text under tests/golden. `pytest --bless` rewrites the output of passes.

text/*.chi    text with an error, or text that must print unchanged
verify/*.chi  well-formed text that `verify` rejects
passes/*/*.chi  `; run: a,b` names passes, then follows the input, `; expect:` starts the output
autodiff/*.chi  `; grad: MODE a,b` names a mode and the arrays by which a kernel is differentiated,
                `; expect:` starts its gradient (and the Func that counts the cells of its buffers)
analysis/*/*.chi  of a folder named as an analysis of `tests.analyses`: `; expect:` starts its
                result, each line a comment

An expected error is on its line after `; error:` (a part of the message). Parsing and printing any
of the files twice must give the same text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.analyses import ANALYSES
from vkchi.autodiff.loops import strip_mine
from vkchi.autodiff.results import GradientRequest
from vkchi.calls.gradients import differentiate, forward_func, simplify_for_gradient
from vkchi.cli.ir import apply_pass
from vkchi.errors import CompilationError, InternalError
from vkchi.ir.core import Func, Op, base_memory, walk
from vkchi.ir.ops import READS, WRITES
from vkchi.ir.text import parse, print_func, print_program
from vkchi.ir.verify import verify, verify_program

GOLDEN = Path(__file__).parent / "golden"
ERROR = re.compile(r"; error: (.*)$")


def list_files(pattern: str) -> list[Path]:
    return sorted(GOLDEN.glob(pattern))


def name_of(path: Path) -> str:
    return str(path.relative_to(GOLDEN).with_suffix(""))


def expected_error(path: Path) -> tuple[str, int] | None:
    """(text, line number) of the first `; error:` in the file; None if there is none."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = ERROR.search(line)
        if found:
            return found[1], number
    return None


def drop_comment_lines(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line[:1] != ";")


def sections(text: str) -> list[str]:
    """The parts of a text before and after `; expect:`."""
    return text.split("; expect:\n")


@pytest.mark.parametrize("path", list_files("text/*.chi"), ids=name_of)
def test_text_round_trip(path: Path) -> None:
    error = expected_error(path)
    if error is None:
        printed = print_program(parse(path.read_text(), str(path)))
        assert printed == drop_comment_lines(path.read_text())
        return
    with pytest.raises(CompilationError) as caught:
        parse(path.read_text(), str(path))
    assert error[0] in str(caught.value)
    assert f"{path}:{error[1]}:" in str(caught.value)


@pytest.mark.parametrize("path", list_files("verify/*.chi"), ids=name_of)
def test_verifier_golden_errors(path: Path) -> None:
    error = expected_error(path)
    assert error is not None, "a file in verify/ says what is wrong"
    program = parse(path.read_text(), str(path))
    with pytest.raises(InternalError) as caught:
        verify_program(program)
    assert error[0] in str(caught.value)
    assert f"{path}:{error[1]}:" in str(caught.value)


@pytest.mark.parametrize("path", list_files("**/*.chi"), ids=name_of)
def test_round_trip(path: Path) -> None:
    for text in sections(path.read_text()):
        if not drop_comment_lines(text):
            continue  # the results of an analysis
        try:
            printed = print_program(parse(text, str(path)))
        except CompilationError:
            assert path.parent.name == "text", "only files of text/ may have errors of form"
            return
        assert print_program(parse(printed)) == printed


def test_base_memory_of_every_access() -> None:
    """`base_memory` of each access in the goldens is a parameter, a local or shared memory.

    Reads, writes, copies and snapshots of a dispatch depend on it.
    """
    bases = set()
    for path in list_files("passes/*/*.chi"):
        for text in sections(path.read_text()):
            for fn in parse(text, str(path)).funcs:
                for op in walk(fn.body):
                    if op.kind in READS | WRITES and op.args:
                        base = base_memory(op.args[0])
                        bases.add(base.kind if isinstance(base, Op) else type(base).__name__)
    assert bases == {"Param", "local", "shared"}


@pytest.mark.parametrize("path", list_files("passes/*/*.chi"), ids=name_of)
def test_pass_goldens(path: Path, bless: bool) -> None:
    from vkchi.opt.pipeline import PASSES

    source, *expected = sections(path.read_text())
    header = re.search(r"^; run: (.*)$", source, re.MULTILINE)
    assert header, "the file says `; run: PASS,PASS`"
    program = parse(source, str(path))
    verify_program(program)
    for name in header[1].replace(" ", "").split(","):
        program = apply_pass(program, PASSES[name])
        verify_program(program)
    printed = print_program(program)
    if bless:
        path.write_text(f"{source.rstrip()}\n; expect:\n{printed}")
    else:
        assert expected, "no `; expect:` yet: run pytest --bless and read the diff"
        assert printed == expected[0]


def reversed_of(fn: Func, wrt: frozenset[str]) -> tuple[Func, ...]:
    made = differentiate(fn, GradientRequest(wrt))
    counted = made.counting is not None and made.saves_used()
    return (made.func, made.counting.func) if made.counting and counted else (made.func,)


def strip_mined(fn: Func, wrt: frozenset[str]) -> tuple[Func, ...]:
    made = differentiate(fn, GradientRequest(wrt))
    found = strip_mine(made.func, frozenset(save.param.name for save in made.saves_used()))
    assert found is not None, "the gradient has such a form"
    return (found,)


def second_of(fn: Func, wrt: frozenset[str]) -> tuple[Func, ...]:
    made = differentiate(fn, GradientRequest(wrt))
    return (forward_func(made.func, wrt | frozenset((*made.copies, *made.adjoints.values()))),)


MODES = {
    "reverse": reversed_of,
    "forward": lambda fn, wrt: (forward_func(simplify_for_gradient(fn, wrt), wrt),),
    "strip_mine": strip_mined,
    "second": second_of,
}


@pytest.mark.parametrize("path", list_files("autodiff/*.chi"), ids=name_of)
def test_gradient_goldens(path: Path, bless: bool) -> None:
    source, *expected = sections(path.read_text())
    header = re.search(r"^; grad: (\w+) (.*)$", source, re.MULTILINE)
    if header is None:  # made of the .py beside it: tests/unit/test_frontend_golden.py
        assert path.with_suffix(".py").exists()
        return
    (fn,) = parse(source, str(path)).funcs
    funcs = MODES[header[1]](fn, frozenset(header[2].split(",")))
    for made in funcs:
        verify(made)
    printed = "\n".join(print_func(made) for made in funcs)
    if bless:
        path.write_text(f"{source.rstrip()}\n; expect:\n{printed}")
    else:
        assert expected, "no `; expect:` yet: run pytest --bless and read the diff"
        assert printed == expected[0]


@pytest.mark.parametrize("path", list_files("analysis/*/*.chi"), ids=name_of)
def test_analysis_goldens(path: Path, bless: bool) -> None:
    source, *expected = sections(path.read_text())
    program = parse(source, str(path))
    verify_program(program)
    (fn,) = program.funcs
    said = "".join(f"; {line}\n" for line in ANALYSES[path.parent.name](fn))
    if bless:
        path.write_text(f"{source.rstrip()}\n; expect:\n{said}")
    else:
        assert expected, "no `; expect:` yet: run pytest --bless and read the diff"
        assert said == expected[0]
