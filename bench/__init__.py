"""Benchmarks; what runs in Python is imported from the root of the repository."""
