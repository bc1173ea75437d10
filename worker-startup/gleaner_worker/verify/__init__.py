"""Verifies a run: reads everything again and finds out whether each sample is stored exactly once."""
