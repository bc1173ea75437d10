"""Compares the stored activations of a run with transformers, in an environment that has torch and transformers."""
