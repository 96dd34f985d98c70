"""From Python source to CHI IR. Start at `lower` (AST class -> handler); `values` says what an
expression evaluates to while a kernel is being lowered."""
