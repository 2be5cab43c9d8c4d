"""Benchmarks that a user can run: what this machine gives, against the usual way of doing the same."""
