"""What a function names: in its text and in its code, and words that show what it may do.

Must not know: values.

    >>> names_in((lambda: grid.dx).__code__)
    {'grid', 'dx'}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from opcode import hasname, opmap
from types import CodeType, FunctionType

from vkchi.cache.store import digest

WORD = re.compile(r"[^\W\d]\w*")
# Words by which a text may reach what is not found by names.
_REACHING = """
    getattr setattr vars eval exec globals locals __import__ __dict__ import __getattribute__
    __globals__ __builtins__ __closure__
"""
# Names of what gives something else each time, or is to be seen each time.
_CHANGING = "dir open input id hash static_print cfg current_cfg get_runtime impl snode parent"
# Names by which objects are made, copied or shown whose classes no name leads to.
_SHOWING = "str repr format ascii print type __class__ hash set frozenset copy deepcopy"
REACHING, CHANGING, SHOWING = (frozenset(text.split()) for text in (_REACHING, _CHANGING, _SHOWING))
_FORMATTING = "FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC BUILD_STRING CONVERT_VALUE"
FORMATTING = frozenset(opmap[name] for name in _FORMATTING.split() if name in opmap)
IMPORT = opmap["IMPORT_NAME"]
EXTENDED, LOAD_GLOBAL = opmap["EXTENDED_ARG"], opmap["LOAD_GLOBAL"]
_OF_ATTRIBUTES = "LOAD_ATTR LOAD_METHOD STORE_ATTR DELETE_ATTR LOAD_SUPER_ATTR IMPORT_FROM"
# Instructions with the number of a name that is none of an attribute.
NAMING = frozenset(hasname).difference(opmap.get(name, -1) for name in _OF_ATTRIBUTES.split())
TYPED = "<string>"  # of what dataclasses and the like make, whose text nobody has
COMPARISONS = ("__eq__", "__lt__", "__le__", "__gt__", "__ge__")  # that dataclasses generate


def without_comments(text: str) -> tuple[str, tuple[int, ...]]:
    """A function's text without comments, and the numbers of the lines that are left, from 0: lines
    that hold nothing else are not. Where it cannot be told what a comment is, all is left."""
    lines = [line + "\n" for line in text.split("\n")]
    starts = comment_starts(text, lines) if "#" in text else {}
    left = [k for k, line in enumerate(lines) if k not in starts or line[: starts[k]].strip()]
    bare = (lines[k][: starts[k]].rstrip() + "\n" if k in starts else lines[k] for k in left)
    return "".join(bare).rstrip(), tuple(left)


def comment_starts(text: str, lines: list[str]) -> dict[int, int]:
    """The columns in which comments begin, by line; from 0."""
    if "'" not in text and '"' not in text:  # then there are no strings that # may stand in
        return {k: line.index("#") for k, line in enumerate(lines) if "#" in line}
    import tokenize  # some ms for what few kernels need

    try:
        tokens = list(tokenize.generate_tokens(iter(lines).__next__))
    except (tokenize.TokenError, SyntaxError):
        return {}
    if any(t.type == tokenize.ERRORTOKEN for t in tokens):
        return {}
    return {t.start[0] - 1: t.start[1] for t in tokens if t.type == tokenize.COMMENT}


def odd_words(fn: FunctionType, text: str) -> set[str]:
    """What a function says by which it may reach what is not found by names. Without a text, Python
    runs it, and its code says all."""
    code, names = fn.__code__, names_in(fn.__code__)
    odd = words_of(text) if text else names
    odd = (odd & REACHING) | (names & CHANGING)
    if not text and IMPORT in code.co_code[::2]:
        odd.add("import")
    if text and code.co_filename.startswith("<"):  # annotations in it are not in its code
        odd.add(code.co_filename)
    return odd


def shows_objects(fn: FunctionType) -> bool:
    """Whether a function may make, copy or show objects whose classes it does not name."""
    code, module = fn.__code__, fn.__globals__.get("__name__")
    is_generated = code.co_filename == TYPED and fn.__name__ in COMPARISONS
    if is_generated or module in ("enum", "types"):  # texts of errors only
        return False
    return _shows(code) or not SHOWING.isdisjoint(names_in(code))


def _shows(code: CodeType) -> bool:
    texts = [c for c in code.co_consts if isinstance(c, str)]
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return (
        not FORMATTING.isdisjoint(code.co_code[::2])
        or any("%" in text for text in texts)
        or any(map(_shows, inner))
    )


def words_of(text: str) -> set[str]:
    """The names that a text may say, in comments and strings too."""
    if not text.isascii():
        import unicodedata  # few programs have such names

        text = unicodedata.normalize("NFKC", text)
    return set(WORD.findall(text))


def names_in(code: CodeType) -> set[str]:
    """The globals and attributes that code names, and the functions inside it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= names_in(constant)
    return found


def globals_in(code: CodeType) -> set[str]:
    """The names that code may read as globals, and the functions inside it: those that are not only
    names of attributes."""
    found: set[str] = set()
    extended, names, text = 0, code.co_names, code.co_code
    for op, low in zip(text[::2], text[1::2]):
        number, extended = extended | low, (extended | low) << 8 if op == EXTENDED else 0
        if op in NAMING:
            number >>= op == LOAD_GLOBAL and sys.version_info >= (3, 11)  # the last bit: a call
            found.update(names[number : number + 1] or names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= globals_in(constant)
    return found


def code_of(fn: FunctionType) -> bytes:
    """What a function's code does, wherever it stands."""

    def parts(code: CodeType) -> Iterable[bytes]:
        yield code.co_code
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags)).encode()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from parts(constant)
            elif isinstance(constant, frozenset):
                yield repr(sorted(map(repr, constant))).encode()
            else:
                yield repr(constant).encode()

    return digest(parts(fn.__code__)).encode()
