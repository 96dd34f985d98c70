"""End of a function's definition in its file: found from its code and its syntax."""

import inspect
from types import CodeType, FunctionType

import pytest

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.syntax.source import read_block

TEXT = '''
def plain(a):
    x = 1
    return a + x


def ends_in_text():
    """Nothing but
a text at the left margin
    """


def dead(a):
    return a
    b = """
unreachable, at the left margin
"""

def only_names(
    a,
    b=(1,
2),
): ...

def ends_in_comment():
    pass
    # its own
# not its own

@staticmethod
@str.join
def decorated():
    def inner():
        return [k
for k in range(3)]
    x: int

if True:
    def nested():
        return 1

        # of nested

    other = 1
else:
    def nested2():
        return 2
def last(): return {
    1: 2
}
'''


def codes_in(code: CodeType):
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def write(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    return list(codes_in(compile(text, str(path), "exec")))


def test_a_block_agrees_with_tokens(tmp_path):
    lines = TEXT.splitlines(keepends=True)
    for code in write(tmp_path, TEXT):
        if code.co_name.startswith("<"):
            continue
        found = read_block(FunctionType(code, {}))
        wanted = inspect.getblock(lines[code.co_firstlineno - 1 :])
        assert "".join(found).rstrip() == "".join(wanted).rstrip(), code.co_name


def test_most_blocks_are_found_without_tokens(tmp_path, monkeypatch):
    def refuse(lines):
        raise AssertionError("tokens were read")

    monkeypatch.setattr(inspect, "getblock", refuse)
    for code in write(tmp_path, TEXT):
        if code.co_name in ("plain", "decorated", "inner", "nested", "nested2"):
            read_block(FunctionType(code, {}))


def test_a_changed_source_is_reported(tmp_path):
    (code,) = write(tmp_path, "def f(a):\n    return a\n")
    (tmp_path / "program.py").write_text("x = (\n", encoding="utf-8")
    with pytest.raises(KernelSyntaxError, match="not what stands in its file now"):
        read_block(FunctionType(code, {}))
