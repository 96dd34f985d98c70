"""Exception safety under Ctrl-C: in destructors, locks and imports."""
