"""The rules of config.json that depend on its keys alone, as JSON for commands and functions, which have no Python.

    python -m gleaner_worker.model.config_rules > shared/contracts/model-rules.json

The rules of sizes and numbers are in config.py alone.
"""

import json

from .config import ACTIVATIONS, renamed_keys
from .families import DEFAULTS, FAMILIES, NEUTRAL, Family


def rules() -> dict:
    return {
        "activations": sorted(ACTIVATIONS),
        "neutral": {key: list(values) for key, values in NEUTRAL.items()},
        "families": {name: _rules_of(family) for name, family in FAMILIES.items()},
    }


def _rules_of(family: Family) -> dict:
    """renamed: each key of another family, with the key here in its place, and the value that it may have anyway."""
    defaults = DEFAULTS | family.defaults
    own = {key: family.renamed.get(key, key) for key in ("num_hidden_layers", "hidden_act")}
    return {
        "inner": family.inner,
        "layers": own["num_hidden_layers"],
        "activation": own["hidden_act"],
        "reads": sorted(family.reads),
        "renamed": {key: [name, defaults.get(name)] for key, name in renamed_keys(family).items()},
        "ropes": list(family.ropes),
        "ropes_by_layer_type": family.local_rope,
        "windows": family.windows,
    }


if __name__ == "__main__":
    print(json.dumps(rules(), indent=2))
