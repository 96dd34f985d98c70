"""No two modules have one name, but where the pair is the point: one subject on two sides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

VKCHI = Path(__file__).parents[2] / "vkchi"

# Modules that stand for each other, and what they have in common.
PAIRS = {
    "access": "which elements accesses come to (analysis), and the addresses they become (passes)",
    "activity": "which cells are active: of fields, and in kernels",
    "answers": "the table of what was found out (cache), and its forms for derivatives (autodiff)",
    "arguments": "what is passed: to a graph, to a shader",
    "arith": "operators in kernels, and their instructions",
    "atomics": "functions of users, and their instructions",
    "attributes": "what is known of a value by name: of vectors in kernels, of parameters",
    "axes": "axes of field trees, and of loops over them",
    "builder": "what puts a tree, a graph, a matrix, IR together",
    "canvas": "what is drawn on: by numpy, by the renderer",
    "cells": "cells of field trees: where they lie, what lowering knows of them, functions of them",
    "checks": "what is wrong, said before it happens: in debug mode, in operators",
    "cli": "the commands of a package",
    "constants": "constants of the IR, and those of Taichi's `ti.ui`",
    "construct": "vectors and matrices made by calls: in kernels, in Python",
    "control": "control ops by their rows, and as blocks",
    "core": "what a package is made of",
    "elementwise": "functions as objects, and as ops",
    "handles": "handles of memory as data, and of Vulkan's objects",
    "image": "pictures as pixels of a window, and as files",
    "intervals": "intervals of an op (its row), and of a value wherever it stands",
    "lower": "Python to IR, IR to instructions",
    "math": "the module, and the name that programs import it by",
    "memory": "memory of the interpreter, of shaders, of the device",
    "module": "a module that is saved, and SPIR-V's",
    "names": "names that are public, and those of added parameters",
    "packed": "numbers that share words: where their bits lie, and the access to them",
    "quantised": "quantised numbers: their types, fields of them, what kernels make of them",
    "records": "structs in kernels, and reports as records in memory",
    "rules": "tables of rules: of derivatives, of algebra",
    "shaped": "code for known extents: a Func of them, and what is kept of it beside a kernel",
    "shapes": "what is drawn, as arrays: for numpy, for the renderer",
    "sparse": "sparse matrices on the host, and their builders in kernels",
    "static": "what happens at compile time: as functions, and in kernels",
    "structs": "struct types, and fields of them",
    "subgroup": "functions of users, and their instructions",
    "survey": "what has to be known before something is made: a key, a shader",
    "texture": "textures as Python holds them, and what accesses compute",
    "warp": "CUDA's names: as functions, and in kernels",
    "widgets": "widgets over a picture: of `ti.GUI`, of `ti.ui`",
    "window": "a window: by pygame-ce, by the renderer",
}


def names_of_several() -> set[str]:
    count = Counter(path.stem for path in VKCHI.rglob("*.py") if path.stem[0] != "_")
    return {name for name, many in count.items() if many > 1}


def test_modules_of_one_name_are_pairs() -> None:
    assert names_of_several() <= PAIRS.keys()


def test_what_is_named_here_is_there() -> None:
    assert PAIRS.keys() <= names_of_several()
