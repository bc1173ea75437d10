"""The rules of a model's files and of the keys of config.json, as JSON for commands and functions without Python.

    python -m gleaner_worker.architecture.config_rules > shared/contracts/spec/model-rules.json

The rules of sizes and numbers are in config.py alone.
"""

import json
from dataclasses import asdict

from ..model_files import FILE_RULES
from .config import ACTIVATIONS, renamed_keys
from .config_keys import obeyed_keys, transformers_defaults
from .families import DEFAULTS, FAMILIES, NEUTRAL, Family


def rules() -> dict:
    """families: what each one has in place of the usual rules, which are llama's."""
    usual = _rules_of(FAMILIES["llama"])
    return {
        "activations": sorted(ACTIVATIONS),
        "files": [asdict(rule) for rule in FILE_RULES],
        "neutral": {key: list(values) for key, values in sorted((_from_transformers() | NEUTRAL).items())},
        "usual": usual,
        "families": {
            name: {key: value for key, value in _rules_of(family).items() if value != usual[key]}
            for name, family in FAMILIES.items()
        },
    }


def _from_transformers() -> dict[str, tuple]:
    """The keys that a family must leave at the default of transformers, with the values that are allowed."""
    allowed: dict[str, tuple] = {}
    for name in FAMILIES:
        for key, default in transformers_defaults(name).items():
            allowed[key] = tuple(dict.fromkeys((*allowed.get(key, (None,)), default)))
    return allowed


def _rules_of(family: Family) -> dict:
    """renamed: each key of another family, with the key here in its place, and the value that it may have anyway."""
    defaults = DEFAULTS | family.defaults
    own = {key: family.renamed.get(key, key) for key in ("num_hidden_layers", "hidden_act")}
    return {
        "inner": family.inner,
        "layers": own["num_hidden_layers"],
        "activation": own["hidden_act"],
        "reads": sorted(family.reads | obeyed_keys(family) & _from_transformers().keys()),
        "renamed": {key: [name, defaults.get(name)] for key, name in renamed_keys(family).items()},
        "ropes": list(family.ropes),
        "ropes_by_layer_type": family.local_rope,
        "windows": family.windows,
    }


if __name__ == "__main__":
    print(json.dumps(rules(), indent=2))
