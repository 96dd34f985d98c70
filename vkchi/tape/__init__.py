"""Running gradients: tapes, forward mode, checks. Above the compiler."""
