"""Lowering of Python source to CHI IR. The entry is `lowering.lower_kernel`.

`values` defines the compile-time values that expressions evaluate to. `context.Lowering` is the
state that every handler receives as `cx`.

- source: `source` (AST and spans of a function), `syntax` (syntactic facts), `unsupported_syntax`
- names: `scope` (variables, blocks, activations), `dependencies` (captured objects), `trees`
- expressions: `lower_expr` (AST class -> handler), `places` (names, attributes, subscripts),
  `callee` (call dispatch), `inline` (functions), `compile_time_forms`
- assignment: `assign`, `targets`
- statements: `lower_stmt` (AST class -> handler), `flow` (branches, leaving blocks), `loops`,
  `spaces` (iteration spaces), `carry` (loop-carried variables)
- operations: `operator_lowering`, `operands`, `power`; `intrinsics` completes the tables of
  `call_tables` from `builtins`, `elementwise_calls`, `tensor_construction`, `methods`; later
  `draw`, `simt` and `decompositions` add to them
"""
