"""Names of Taichi: aliases, and what is refused."""
