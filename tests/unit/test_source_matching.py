"""A text is taken for a function's only where compiling it gives the function."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import linecache
import os
import py_compile
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.syntax import matching
from vkchi.frontend.syntax.source import source_of

CHANGED = "is not what stands in its file now"
LIBRARY = ("ast", "dataclasses", "fractions", "functools", "heapq", "json.encoder", "statistics")


def functions_of(code: CodeType, names: dict[str, Any]) -> Iterator[FunctionType]:
    """Every plain function in a module's code, with empty cells."""
    for x in code.co_consts:
        if isinstance(x, CodeType):
            is_function = x.co_flags & 1 and not x.co_flags & (128 | 512)
            if is_function and (not x.co_name.startswith("<") or x.co_name == "<lambda>"):
                cells = tuple(CellType() for _ in x.co_freevars)
                yield FunctionType(x, names, x.co_name, None, cells)
            yield from functions_of(x, names)


@pytest.mark.parametrize("name", LIBRARY)
def test_the_text_of_every_function_of_pythons_library_is_taken(name: str) -> None:
    module = importlib.import_module(name)
    spec: Any = module.__spec__
    found = [fn for fn in functions_of(spec.loader.get_code(name), vars(module)) if fn.__code__]
    assert len(found) > 10
    for fn in found:
        if fn.__code__.co_name not in ("_Func", "F"):  # aliases and parameters of types
            source_of(fn)


FORMS = {
    "operator": ("def f(x):\n    return x + 1\n", "def f(x):\n    return x - 1\n"),
    "constant": ("def f(x):\n    return x * 2\n", "def f(x):\n    return x * 3\n"),
    "sign of zero": ("def f(x):\n    return x * 0.0\n", "def f(x):\n    return x * -0.0\n"),
    "type": ("def f(x):\n    return x * 2\n", "def f(x):\n    return x * 2.0\n"),
    "name": ("def f(x):\n    return x * a\n", "def f(x):\n    return x * b\n"),
    "inner": (
        "def f(x):\n    return [i for i in x if i]\n", "def f(x):\n    return [i for i in x if x]\n"
    ),
    "line": ("def f(x):\n    x += 1\n    return x\n", "def f(x):\n\n    x += 1\n    return x\n"),
    "set": ("def f(x):\n    return x in {1, 2, 3}\n", "def f(x):\n    return x in {1, 2, 4}\n"),
    "method": (
        "class A:\n    def f(self):\n        return self.__x\n",
        "class A:\n    def f(self):\n        return self.__y\n",
    ),
    "closure": (
        "def g(n):\n    def f(x):\n        return x + n\n    return f\n",
        "def g(n):\n    def f(x):\n        return n + x\n    return f\n",
    ),
    "lambda": ("f = lambda x: x + 1\n", "f = lambda x: x - 1\n"),
    "decorator": (
        "def d(g):\n    return g\n@d\ndef f(x):\n    return x + 1\n",
        "def d(g):\n    return g\n@d\ndef f(x):\n    return x * 1\n",
    ),
    "imported": (
        "import math as m\ndef f(x):\n    return m.sin(x)\n",
        "import math as m\ndef f(x):\n    return m.cos(x)\n",
    ),
    "future": (
        "from __future__ import annotations, division\ndef f(x):\n    y: int = x\n    return y\n",
        "from __future__ import annotations, division\ndef f(x):\n    y: int = -x\n    return y\n",
    ),
}  # fmt: skip


def function_in(path: Path, text: str) -> FunctionType:
    found = functions_of(compile(text, str(path), "exec", dont_inherit=True), {})
    return next(fn for fn in found if fn.__code__.co_name in ("f", "<lambda>"))


@pytest.mark.parametrize("name", FORMS)
def test_an_edited_file_raises(tmp_path: Path, name: str) -> None:
    text, edited = FORMS[name]
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    source_of(function_in(path, text))
    path.write_text(edited, encoding="utf-8")
    source_of(function_in(path, edited))
    with pytest.raises(KernelSyntaxError, match=CHANGED) as told:
        source_of(function_in(path, text))
    assert "start Python again" in str(told.value)


@pytest.mark.parametrize("lines", ["# a\n# b\n", "# a\n\n", "\n\n\n", "  # a\n\n", "if 1:\n  f\n"])
def test_lines_without_a_statement_raise(tmp_path: Path, lines: str) -> None:
    text = "\n\ndef f(x):\n    return x + 1\n"
    path = tmp_path / "program.py"
    path.write_text("\n\n" + lines, encoding="utf-8")
    with pytest.raises(KernelSyntaxError, match=CHANGED):
        source_of(function_in(path, text))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_stale_pyc_raises(tmp_path: Path) -> None:
    path = tmp_path / "stale.py"
    path.write_text("def f():\n    return 1\n", encoding="utf-8")
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text("def f():\n    return 2\n", encoding="utf-8")
    module = load(path)
    assert module.f() == 1
    with pytest.raises(KernelSyntaxError, match=CHANGED) as told:
        source_of(module.f)
    assert "__pycache__" in str(told.value)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_pyc_of_another_level_of_optimization_is_taken(tmp_path: Path, level: int) -> None:
    path = tmp_path / "optimized.py"
    path.write_text(
        'def f(x):\n    "Text."\n    assert x > 0\n    return __debug__\n', encoding="utf-8"
    )
    code = compile(
        path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True, optimize=level
    )
    (fn,) = functions_of(code, {})
    assert source_of(fn).node.name == "f"


class Doubling(importlib.machinery.SourceFileLoader):
    """An import hook that puts a statement into every function."""

    def source_to_code(self, data: Any, path: Any, **options: Any) -> Any:  # type: ignore[override]
        tree = ast.parse(data)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                node.body.insert(0, ast.copy_location(ast.parse("hook = 1").body[0], node.body[0]))
        return compile(ast.fix_missing_locations(tree), path, "exec")


def test_functions_that_an_import_hook_rewrote_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "hooked.py"
    path.write_text("def f(x):\n    return x + 3\n", encoding="utf-8")
    loader = Doubling("hooked", str(path))
    spec = importlib.util.spec_from_file_location("hooked", path, loader=loader)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source_of(module.f)
    path.write_text("def f(x):\n    return x + 4\n", encoding="utf-8")
    spec.loader.exec_module(module)
    path.write_text("def f(x):\n    return x + 5\n", encoding="utf-8")
    with pytest.raises(KernelSyntaxError, match=CHANGED):
        source_of(module.f)


def test_functions_with_assertions_that_pytest_rewrote_are_taken() -> None:
    def f(x: int) -> int:
        assert x > 2 * 3, "small"
        assert x in (7, 8)
        return x + 1

    assert matching.is_rewritten(f)
    assert source_of(f).node.name == "f"


def test_python_warns_once_of_a_text(tmp_path: Path) -> None:
    """Not a second time when the text is compiled to compare it."""
    path = tmp_path / "odd.py"
    text = "def f(x):\n    return x is 1\n"
    path.write_text(text, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn = function_in(path, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source_of(fn)
        with pytest.raises(UserWarning):
            warnings.warn("of others", UserWarning, stacklevel=1)


def test_a_name_that_several_texts_have_had(tmp_path: Path) -> None:
    """As programs do that generate code: each text replaces the one before in linecache."""
    made = []
    for k in range(2):
        text = f"def f(x):\n    return x + {k}\n"
        linecache.cache["<made>"] = (len(text), None, text.splitlines(True), "<made>")
        made += functions_of(compile(text, "<made>", "exec", dont_inherit=True), {})
    assert ast.unparse(source_of(made[1]).node.body[0]) == "return x + 1"
    with pytest.raises(KernelSyntaxError, match=CHANGED):
        source_of(made[0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_script_from_a_named_pipe_raises(tmp_path: Path) -> None:
    pipe = tmp_path / "script.py"
    os.mkfifo(pipe)
    text = (
        "from vkchi.frontend.syntax.source import source_of\ndef f():\n    return 1\nsource_of(f)\n"
    )
    writer = threading.Thread(target=lambda: pipe.write_text(text, encoding="utf-8"))
    writer.start()
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(pipe)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    writer.join()
    assert done.returncode == 1
    assert "came through a pipe" in done.stderr and "write it to a file" in done.stderr


def test_the_functions_of_a_module_with_the_name_of_a_type() -> None:
    """`__loader__` may be a class: of built-in and frozen modules."""
    fn = types.FunctionType(source_of.__code__, {"__loader__": importlib.machinery.BuiltinImporter})
    assert not matching.is_rewritten(fn)


def test_another_function_of_the_name_that_is_in_its_line_now(tmp_path: Path) -> None:
    variants = "def f():\n        return 1", "def f():\n        return 2"
    text = "if {}1:\n    {}\nelse:\n    {}\n"
    path = tmp_path / "variants.py"
    fn = function_in(path, text.format("", *variants))
    assert fn() == 1
    path.write_text(text.format("not ", *reversed(variants)), encoding="utf-8")
    with pytest.raises(KernelSyntaxError, match=CHANGED):
        source_of(fn)


PAIR = "f = [lambda x: x + 1, lambda x: x * 1, lambda x: (lambda y: x - y)(1)]\n"


@pytest.mark.parametrize("options", [(), ("-X", "no_debug_ranges")])
def test_lambdas_of_one_line_are_distinguished_by_their_code(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "pair.py"
    path.write_text(
        f"import ast\nfrom vkchi.frontend.syntax.source import source_of\n{PAIR}"
        "print([ast.unparse(source_of(g).node.body[0].value) for g in f])\n",
        encoding="utf-8",
    )
    ran = subprocess.run([sys.executable, *options, path], capture_output=True, text=True)
    assert ran.stdout.strip() == "['x + 1', 'x * 1', '(lambda y: x - y)(1)']", ran.stderr


def test_lambdas_that_were_swapped_in_their_line(tmp_path: Path) -> None:
    path = tmp_path / "places.py"
    path.write_text("f = [lambda x: x + 1, lambda x: x * 2]\n", encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), space)
    path.write_text("f = [lambda x: x * 2, lambda x: x + 1]\n", encoding="utf-8")
    found = [ast.unparse(source_of(g).node.body[0]) for g in space["f"]]
    assert found == ["return x + 1", "return x * 2"]


def test_a_cell_with_statements_compiled_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "cell.py"  # as IPython does: the import is in no code that calls
    text = "import math as m\n\n\ndef f(x):\n    return m.sin(x) + m.floor(x)\n"
    path.write_text(text, encoding="utf-8")
    space: dict[str, Any] = {}
    for statement in ast.parse(text).body:
        exec(compile(ast.Module([statement], []), str(path), "exec"), space)
    assert source_of(space["f"]).node.name == "f"
    exec(compile(text, str(path), "exec"), space)
    assert source_of(space["f"]).node.name == "f"
