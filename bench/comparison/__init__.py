"""Runs Apus, nginx and the floor side by side. `compare.py` is the entry point."""
