"""Lowering of Python source to CHI IR. The entry is `lower.lower_kernel`.

`values` defines the compile-time values that expressions evaluate to. `context.Lowering` is the
state that every handler receives as `cx`.

- source: `source` (AST and spans of a function), `syntax` (syntactic facts), `refuse`
- names: `scope` (variables, blocks, activations), `dependencies` (captured objects), `trees`
- expressions: `lower_expr` (AST class -> handler), `places` (names, attributes, subscripts),
  `callee` (call dispatch), `inline` (functions), `static` (compile-time forms)
- assignment: `assign`, `targets`
- statements: `lower_stmt` (AST class -> handler), `flow` (branches, leaving blocks), `loops`,
  `spaces` (iteration spaces), `carry` (loop-carried variables)
- operations: `arith`, `operands`, `power`; `intrinsics` and the tables that it completes: `call`,
  `builtins`, `elementwise`, `construct`, `methods`, `attributes`, `draw`, `simt`, `trace`
"""
