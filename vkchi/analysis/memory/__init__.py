"""Facts about memory: aliases, dependences, regions, coverage."""
