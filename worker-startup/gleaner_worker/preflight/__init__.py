"""Compiles the program of a run without a TPU, checks that the program fits, and estimates its speed."""
