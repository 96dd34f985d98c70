"""State of a lowering: variables, captured objects, reports, active cells."""
