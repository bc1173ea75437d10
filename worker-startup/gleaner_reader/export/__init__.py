"""Exports stored activations for the training code of other projects."""

from .dictionary_learning import open_dictionary_learning, to_dictionary_learning
from .npy import to_npy
from .parts import to_safetensors, to_shuffled_safetensors
from .saelens import to_saelens

__all__ = [
    "open_dictionary_learning",
    "to_dictionary_learning",
    "to_npy",
    "to_saelens",
    "to_safetensors",
    "to_shuffled_safetensors",
]
