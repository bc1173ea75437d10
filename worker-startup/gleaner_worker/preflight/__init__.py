"""Compiles the program of a run for a TPU that is not here, and says whether it fits and how fast it is."""
