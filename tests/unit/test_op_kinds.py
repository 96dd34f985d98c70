"""Facts about op kinds are in the op table: no other module lists kinds.

Counted as a list of kinds: a dict, set, list or tuple written down, of which all keys or items are
strings and two or more name op kinds; but not an operand of a comparison, if that is two
kinds (`kind in ("add", "sub")`). Two sorts are no facts of ops, and are named here with their
meaning: `HANDLERS`, which map kinds to an action of their module (a rule, a visitor, an
opcode: that table *is* the module), and `OTHERS`. A new one must be a column of the op table, or
come here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import vkchi
from vkchi.ir.ops import TABLE

ROOT = Path(vkchi.__file__).parent

# module:name -> meaning of its kinds
HANDLERS = {
    "analysis/values/interval_analysis:NEVER": "which intervals decide a comparison",
    "analysis/values/polynomials:RING": "arithmetic of polynomials",
    "analysis/values/host_numbers:LEAVES": "readers of numbers that launches know",
    "analysis/values/polynomials:FACTOR_RULES": "factors of a result",
    "analysis/values/ranges:BACKWARD": "from a result to its operands",
    "analysis/values/ranges:FOLLOWED": "facts that are an operand's",
    "analysis/values/ranges:RULES": "facts besides the interval",
    "autodiff/reverse:_CONTROL": "reversals",
    "autodiff/reverse:_MEMORY": "reversals",
    "autodiff/rules:_CONTROL": "derivatives",  # parts of a total table
    "autodiff/rules:_ELEMENTWISE": "derivatives",
    "autodiff/rules:_MEMORY": "derivatives",
    "autodiff/rules:_NONDIFF": "derivatives",
    "autodiff/rules:_TENSORS": "derivatives",
    "frontend/ops/debug_checks:OVERFLOWS": "overflow",
    "frontend/ops/debug_checks:SIGNS": "what messages call them",
    "frontend/ops/warp_calls:ADDRESSED": "arguments of shuffles",
    "frontend/ops/warp_calls:BEYOND": "arguments of shuffles",
    "opt/lowering/finite_stores:UPDATES": "values that atomics store",
    "opt/lowering/lower_access:HANDLERS": "addresses",
    "opt/rewrite/bounds:WALKS": "proofs of control ops",
    "opt/rewrite/branches:RULES": "simpler control ops",
    "opt/math/f32_math:POWERS": "formulas",
    "opt/rewrite/fold:_EXTRA": "arguments of numpy functions",
    "opt/memory/neighbours:touched": "what accesses may not cross",
    "opt/rewrite/bounds:REWRITES": "cheaper forms",
    "opt/math/quotient:FUNCTIONS": "formulas",
    "opt/lowering/lower_reports:WAYS": "records",
    "opt/lowering/tensor_loops:HANDLERS": "loops over rows",
    "opt/rewrite/roots:BOUNDS": "comparisons",
    "opt/memory/store_forwarding:VISITS": "what is known of memory",
    "opt/rewrite/structure:_COMPONENTS": "components of tensors",
    "opt/rewrite/structure:RULES": "simpler tensors",
    "opt/lowering/subgroups:LIMITS": "limits of scans in wider types",
    "opt/mapping/padding:NEUTRAL_VOTES": "votes of invocations that pad",
    "reports/sites:OPERATORS": "what messages call them",
    "spirv/dispatch:EXTENDED": "instructions",
    "spirv/dispatch:OPCODES": "instructions",
    "spirv/pointers:ATOMIC_OPCODES": "instructions",
    "spirv/dispatch:ROWS": "instructions",
    "spirv/invocation:ARITHMETIC": "instructions",
    "spirv/invocation:EXCHANGES": "instructions",
    "target/magic:MAGIC": "numbers of divisors",
    "target/shader:COUNT_OPS": "texts of counts",
}
# module:name -> why it is no fact of ops
OTHERS = {
    "algorithms/runs:OPERATIONS": "operations of `reduce_by_key`, as users name them",
    "frontend/ops/elementwise_calls:call": "Python's `and` and `or`",
    "distributed/reductions:act": "numpy's functions of reductions",
    "fields/python_scope:COMPARISONS": "Python's operators",
    "lang/matrix:_COMPARISONS": "Python's operators",
    "lang/simt/subgroup:SCANS": "names of users' functions",
    "lang/simt/subgroup:SEGMENTED": "names of users' functions",
    "opt/forms:KEPT": "ops that their own expansions contain",
    "opt/lowering/lower_access:SHARED": "ops that the pass itself writes",
    "opt/lowering/legalize:MAY_BE_WHOLE": "rows that it leaves out if nothing observes them",
    "opt/loops/listing:tested_number": "tests that the frontend writes for sparse blocks",
    "opt/loops/serial/unroll_limit:KEPT": "loops that keep their form",
    "opt/loops/serial/reroll:SELECTORS": "ops whose attribute is the number of a component",
    "opt/rewrite/structure:SIDE_BY_SIDE": "ops whose components are no arithmetic on components",
    "opt/rewrite/bounds:CANDIDATES": "ops with facts to prove",
    "opt/rewrite/bounds:PLAIN_AMOUNTS": "amounts of shifts that the emitter looks at itself",
    "python_mode/evaluation:INSPECTED": "ops that the frontend looks at after it emitted them",
    "races/detector:_emit": "ops that are written",
    "races/detector:ends": "ops that are written",
    "spirv/dispatch:IN_64_BITS": "what the specification of GLSL's instructions says",
    "spirv/invocation:NATIVE_SCANS": "scans that devices have",
    "types/core:__slots__": "attributes of a class",
}


def lists_of_kinds(path: Path) -> Iterator[str]:
    """Names of the variables or functions in a file that list op kinds."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = str(path.relative_to(ROOT).with_suffix(""))

    def visit(node: ast.AST, name: str) -> Iterator[str]:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = target.id if isinstance(target, ast.Name) else name
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        if is_list(node):
            yield f"{module}:{name}"
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Compare) and is_pair(child)):
                yield from visit(child, name)

    yield from visit(tree, "")


def is_list(node: ast.AST) -> bool:
    """True if an expression lists op kinds."""
    if not isinstance(node, ast.Dict | ast.Set | ast.List | ast.Tuple):
        return False
    items = node.keys if isinstance(node, ast.Dict) else node.elts
    texts = [x.value for x in items if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    return len(texts) >= 2 and all(text in TABLE for text in texts)


def is_pair(node: ast.AST) -> bool:
    """True if an expression is of two items."""
    return isinstance(node, ast.Tuple) and len(node.elts) == 2


@cache
def found() -> set[str]:
    paths = (p for p in sorted(ROOT.rglob("*.py")) if ROOT / "ir" not in p.parents)
    return {name for path in paths for name in lists_of_kinds(path)}


def test_kinds_are_listed_in_the_op_table_only() -> None:
    assert found() - HANDLERS.keys() - OTHERS.keys() == set()


def test_listed_tables_exist() -> None:
    assert (HANDLERS.keys() | OTHERS.keys()) - found() == set()
