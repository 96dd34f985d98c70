"""Rewriting of ops by local rules and facts: simplification, CSE, hoisting."""
