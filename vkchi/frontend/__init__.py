"""From Python source to CHI IR. `lower.lower_kernel` is the entry; `values` says what an expression
evaluates to while a kernel is being lowered, `context` what handlers are given.

- text: `source` (AST and spans of a function), `syntax` (facts of syntax alone), `refuse`
- names: `scope` (variables, blocks, activations), `dependencies` (what was captured), `trees`
- expressions: `lower_expr` (AST class -> handler), `places` (names, attributes, subscripts),
  `callee` (what a call means), `inline` (functions), `static` (what happens while compiling)
- assignment: `assign`, `targets`
- statements: `lower_stmt` (AST class -> handler), `flow` (branches, leaving blocks), `loops`,
  `spaces` (what loops run over), `carry` (the variables of loops)
- operations: `arith`, `operands`, `power`; `intrinsics` and the tables that it completes: `call`,
  `builtins`, `elementwise`, `construct`, `methods`, `attributes`, `draw`, `simt`, `trace`
"""
