"""Exports stored activations for the training code of other projects."""

from .dictionary_learning import to_dictionary_learning
from .npy import to_npy
from .saelens import to_saelens

__all__ = ["to_dictionary_learning", "to_npy", "to_saelens"]
