"""Widens a Mixture-of-Experts checkpoint without changing what it computes."""
