"""Golden programs: tests/golden/frontend/NAME.py becomes the IR of NAME.chi, and errors in
tests/golden/errors/NAME.py have the messages of NAME.txt; the gradients of
tests/golden/autodiff/NAME.py are those of NAME.chi. `pytest --bless` rewrites all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.programs import kernels_of
from vkchi.autodiff.primal import is_smooth_array
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.reverse import differentiate_reverse
from vkchi.calls.gradients import simplify_for_gradient
from vkchi.errors import VkchiError
from vkchi.ir.text import parse, print_func
from vkchi.opt.pipeline import load_pass

GOLDEN = Path(__file__).parents[1] / "golden"
PROGRAMS = sorted((GOLDEN / "frontend").glob("*.py"))
WRONG = sorted((GOLDEN / "errors").glob("*.py"))
GRADIENTS = sorted((GOLDEN / "autodiff").glob("*.py"))


def check(path: Path, text: str, bless: bool) -> None:
    """Compare with the expected file, or rewrite it."""
    if bless:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_matches_golden_ir(path: Path, bless: bool) -> None:
    texts = [print_func(make().func) for _, make in kernels_of(path)]
    for text in texts:
        parse(text)
    check(path.with_suffix(".chi"), "\n".join(texts), bless)


@pytest.mark.parametrize("path", GRADIENTS, ids=lambda path: path.stem)
def test_gradient_matches_golden_ir(path: Path, bless: bool) -> None:
    texts = []
    for _, make in kernels_of(path):
        func = make().func
        names = frozenset(p.name for p in func.params if is_smooth_array(p))
        func = simplify_for_gradient(func, names)
        texts.append(
            print_func(
                load_pass("unread")(differentiate_reverse(func, GradientRequest(names)).func)
            )
        )
    check(path.with_suffix(".chi"), "\n".join(texts), bless)


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_error_matches_golden_message(path: Path, bless: bool) -> None:
    if sys.version_info < (3, 11) and "raised here" in path.with_suffix(".txt").read_text(
        encoding="utf-8"
    ):
        pytest.skip("Python 3.10 does not tell in which column something is raised")
    with pytest.raises(VkchiError) as e:
        for name, make in kernels_of(path):
            if name == "k":
                make()
    check(path.with_suffix(".txt"), f"{type(e.value).__name__}\n{e.value}\n", bless)


def test_every_expected_file_has_its_program() -> None:
    for folder, suffix in (("frontend", ".chi"), ("errors", ".txt")):
        expected = {path.stem for path in (GOLDEN / folder).glob(f"*{suffix}")}
        assert expected == {path.stem for path in (GOLDEN / folder).glob("*.py")}
    made = {path.stem for path in (GOLDEN / "autodiff").glob("*.chi")}
    assert {path.stem for path in GRADIENTS} <= made  # the others: tests/test_golden_ir.py
