"""Tests, run as modules from the root of the repository: python3 -m tests.system.daemon_test ..."""
