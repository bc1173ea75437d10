"""Stored activations in the forms that the field's training code takes."""

from .dictionary_learning import to_dictionary_learning
from .saelens import to_saelens

__all__ = ["to_dictionary_learning", "to_saelens"]
