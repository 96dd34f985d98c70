"""Arrays of other libraries: `host` for numpy and CPU torch."""
