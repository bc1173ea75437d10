"""Makes config_keys.json of the worker: the keys of config.json that transformers knows, by family.

    python test/reference/config_keys.py > worker-startup/gleaner_worker/architecture/config_keys.json

A family's keys are the fields of its config class and of the base class, with their defaults; what the base class takes
out of a file by name; and what the family's modeling code or the shared modeling code reads from a config. The last two
have the default null where the classes have none. The keys of `generation` are taken out of every config.json before
the model is built.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING, GenerationConfig

ROOT = Path(transformers.__file__).parent
_SHARED = ("configuration_utils.py", "modeling_utils.py", "modeling_rope_utils.py", "masking_utils.py")
_READ = re.compile(r"\bconfig\.([a-z]\w*)\b(?!\()|getattr\((?:self\.)?(?:\w+_)?config, \"([a-z]\w*)\"")
_TAKEN = re.compile(r"kwargs\.(?:pop|get)\(\"([a-z]\w*)\"")
# Attributes of every config object, and of other objects that the code calls `config`: no keys of a model's file.
_NO_KEYS = {"json", "name_or_path", "sub_configs", "sub_config_name", "quant_method", "device_map", "disable_mmap"}
_NO_KEYS |= {"default_theta", "base_model_tp_plan", "base_model_pp_plan", "target_lookbehind", "extra_files"}


def keys_of(family: str) -> dict:
    """{key: default} of one family, sorted."""
    config = CONFIG_MAPPING[family]
    folder = ROOT / "models" / family.removesuffix("_text")
    code = "".join(path.read_text() for path in sorted(folder.glob("*ing_*.py")) if "modular" not in path.name)
    shared = "".join((ROOT / name).read_text() for name in _SHARED)
    reads = {name for match in _READ.findall(code + shared) for name in match if name}
    base = (ROOT / "configuration_utils.py").read_text()
    taken = set(_TAKEN.findall(base[base.index("def __post_init__(self") : base.index("def __init_subclass__")]))
    named = (reads | taken) - _NO_KEYS - set(_generation())
    fields = {each.name: _default(each) for each in dataclasses.fields(config)}
    return dict(sorted((dict.fromkeys(named) | fields).items()))


def _generation() -> list[str]:
    return sorted(GenerationConfig._get_default_generation_params())


def _default(each: dataclasses.Field) -> object:
    if each.default_factory is not dataclasses.MISSING:
        return each.default_factory()
    return None if each.default is dataclasses.MISSING else each.default


def text(families: Iterable[str]) -> str:
    """The file: one line for each family, so that a diff names the family."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(keys_of(name))}" for name in families)
    head = f'"transformers": "{transformers.__version__}",\n"generation": {json.dumps(_generation())}'
    return f'{{\n{head},\n"families": {{\n{lines}\n}}\n}}\n'


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "worker-startup"))
    from gleaner_worker.architecture.families import FAMILIES

    sys.stdout.write(text(FAMILIES))
