"""Kernels as plain Python, for debuggers: `VKCHI_PYTHON=1` or `ti.init(arch=ti.python)`.

Each statement of a kernel is lowered by the frontend when Python reaches it, and its ops are
evaluated at once on the kernel's arrays. The frontend defines the language, and the op table
defines the value of each op. Control flow is Python's: `stepping` makes a function that has the
user's file and lines, so that debuggers, tracers and tracebacks see them.

- `evaluation`: a builder that evaluates the ops that it emits.
- `stepping`: Python code of a user's function, its execution statement by statement, and kernel
  values as Python values.
- `python_kernel`: a launch, and the list of kernels that this mode does not run.
"""
