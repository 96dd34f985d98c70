"""Lowering of Python source to CHI IR. The entry is `lowering.lower_kernel`.

`context.Lowering` is the state that every handler receives as `cx`.

- `syntax`: AST and spans of a function (`source`), facts of syntax alone (`syntax_facts`)
- `state`: variables (`scope`), captured objects (`dependencies`), reports
- `values`: the compile-time values that expressions evaluate to (`references`), and their `kinds`,
  each in the file of its values (`array_values`, `tensor_values`)
- `ops`: operators, functions and methods on kernel values
- `control`: handlers by AST class (`statements`, `expressions`), names and subscripts (`places`),
  assignment, branches (`flow`), loops, iteration spaces, loop-carried variables (`carry`)
- `calls`: dispatch (`callee`) and inlining of calls. `intrinsics` completes `tables`; later
  `ops.draw`, `ops.simt` and `ops.decompositions` add to them
"""
