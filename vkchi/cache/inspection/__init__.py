"""Entries of the cache for people: lists, an HTML page, reports of drivers."""
