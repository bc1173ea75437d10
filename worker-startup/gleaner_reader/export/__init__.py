"""Exports stored activations for the training code of other projects."""

from .dictionary_learning import open_dictionary_learning
from .features import to_delphi, to_feature_json
from .hub import to_hub
from .npy import to_npy
from .pairs import open_tokenizer, to_pairs, tokenizer_of
from .parts import to_safetensors, to_shuffled_safetensors
from .saelens import to_saelens
from .speculators import to_speculators

__all__ = [
    "open_dictionary_learning",
    "open_tokenizer",
    "to_delphi",
    "to_feature_json",
    "to_hub",
    "to_npy",
    "to_pairs",
    "to_saelens",
    "to_safetensors",
    "to_shuffled_safetensors",
    "to_speculators",
    "tokenizer_of",
]
