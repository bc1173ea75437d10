"""Changes keys of the configs of every family, and compares what transformers makes of them with what the decoder does.

    PYTHON test/reference/other_values.py [--seed N] [--rounds N] [--only FAMILY,…]

transformers saves each model, in one file or in several, in fp32, bf16 or fp16, as a language model or without a head;
or the config stays as it was written. Each config is refused by name, or computed with an error of at most 1e-5.
Configs that transformers refuses count for nothing. Exits with 1 for any other outcome.
"""

import argparse
import json
import os
import random
import secrets
import sys
import tempfile
from dataclasses import replace

import jax
import numpy as np
import torch
import transformers
from compare import LIMIT, all_sites, distances, ours
from random_configs import ACTIVATIONS, VARIANTS, shape, some
from transformers import AutoConfig
from transformers_model import fill, make_folder

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.families import NEUTRAL
from gleaner_worker.failures import Failure
from gleaner_worker.reference import transformers_model as reference

_OF_LOGITS = ("top_tokens", "top_logprobs", "loss")
# Keys of all families that decide about results, with values beside those that the type of a value suggests.
VALUES = {
    **dict.fromkeys(NEUTRAL, ()),
    "clip_qkv": (4.0,),
    "dtype": ("float16", "bfloat16"),
    "head_dim": (4, 6, 10, 16),
    "mlp_only_layers": ([0], [1]),
    "num_key_value_heads": (1,),
    "partial_rotary_factor": (0.25, 0.5),
    "per_layer_config": ({"0": {"head_dim": 4}},),
    "query_pre_attn_scalar": (3, 7.5),
    "sliding_window": (None, 4, 7),
    "sliding_window_pattern": (2, 3),
    "tie_word_embeddings": (True, False),
}
_SKIPPED = {"model_type", "architectures", "transformers_version", "id2label", "label2id", "text_config"}
_SKIPPED |= {
    "_name_or_path",
    "vision_config",
    "problem_type",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
}
KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
ABSENT = "absent"
# Keys whose defaults make large models; test_defaults.py compares these.
_LARGE = {"hidden_size", "intermediate_size", "vocab_size", "n_embd", "num_attention_heads", "n_head"}
_LARGE |= {"num_hidden_layers", "n_layer", "text_config", "num_experts", "num_local_experts"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--fp32", action="store_true", help="as in compare.py; nothing here is bf16")
    parser.add_argument("--only", default="", help="families whose names begin so, with commas between them")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__} --seed {args.seed}")
    wrong, outcomes = 0, dict.fromkeys(("computed", "refused", "invalid"), 0)
    for turn in range(args.rounds):
        for name in VARIANTS:
            if name.startswith(tuple(args.only.split(","))):
                changed, outcome = outcome_of(name, random.Random(f"{args.seed} {turn} {name}"))
                kind = outcome.split(":")[0]
                outcomes[kind] = outcomes.get(kind, 0) + 1
                wrong += kind not in ("computed", "refused", "invalid")
                print(f"{name:18}  {changed}  {outcome}", flush=True)
                jax.clear_caches()
    print(", ".join(f"{count} {kind}" for kind, count in outcomes.items()))
    sys.exit(1 if wrong else 0)


def outcome_of(name: str, rng: random.Random) -> tuple[dict, str]:
    """The changed keys, and the outcome."""
    raw, special = VARIANTS[name](rng, shape(rng))
    raw = json.loads(json.dumps(raw))
    text = raw.get("text_config", raw)
    changed = change(text, rng)
    with tempfile.TemporaryDirectory() as folder:
        form = rng.choice(("written", "saved", "sharded", "without a head"))
        try:
            if form == "written":
                make_folder(folder, raw, rng.randrange(2**32), dtype=torch.bfloat16, **special)
            else:
                save(folder, raw, form, rng)
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                raw = json.load(file)
            model = reference.load(folder)
            ids = np.random.default_rng(rng.randrange(2**32)).integers(
                0, model.config.get_text_config().vocab_size, 150
            )
            model.get_decoder()(torch.as_tensor(ids)[None], use_cache=False)
        except Exception as error:  # transformers has no error of its own for configs
            return changed, f"invalid: {type(error).__name__}"
        return changed, compared(folder, name, raw, model, ids.astype(np.int32), form)


def compared(folder: str, name: str, raw: dict, model, ids: np.ndarray, form: str) -> str:
    try:
        config = parse_config(raw, name)
    except Failure as failure:
        return f"refused: {failure.reason[:200]}"
    if config.max_positions < len(ids) or config.vocab_size < 20:
        return "invalid: too small"
    capture = all_sites(config)
    if form == "without a head":
        capture = replace(capture, sites=tuple(site for site in capture.sites if site not in _OF_LOGITS))
    wanted = reference.run(model, ids, capture.names)
    if not all(np.isfinite(values).all() for values in wanted.values()):
        return "invalid: not finite"
    try:
        errors = distances(ours(folder, config, "fp32", ids, capture), wanted)
    except Failure as failure:
        return f"failed: {failure.reason}"
    worst = max(errors, key=lambda site: np.nan_to_num(errors[site], nan=np.inf))
    return f"{'computed' if errors[worst] <= LIMIT else 'wrong'}: {errors[worst]:.1e} in {worst}, {form}"


def save(folder: str, raw: dict, form: str, rng: random.Random) -> None:
    """As transformers saves a model."""
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(raw, file)
    model = reference.class_of(folder).from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    fill(model, rng.randrange(2**32))
    model = model.to(rng.choice([torch.float32, torch.bfloat16, torch.float16]))
    saved = model.base_model if form == "without a head" and "text_config" not in raw else model
    saved.save_pretrained(folder, max_shard_size="20KB" if form == "sharded" else "5GB")


def change(text: dict, rng: random.Random) -> dict:
    """Changes up to three keys of the config, and returns them; ABSENT for a key that is left out."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(text, file)
        config = AutoConfig.from_pretrained(folder)
    own = config.to_dict()
    keys = sorted(own.keys() - _SKIPPED), sorted(VALUES)
    for_all = {}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        key = rng.choice(keys[rng.random() < 0.2])
        way = rng.random()
        if way < 0.15 and key not in _LARGE:
            for_all[key] = ABSENT
        elif way < 0.2:
            for_all[key] = None
        else:
            for_all[key] = other_value(key, text.get(key, own.get(key)), config, rng)
    for key, value in for_all.items():
        text[key] = value
        if value is ABSENT:
            del text[key]
    return for_all


def other_value(key: str, value, config, rng: random.Random):
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if key in ("rope_scaling", "rope_parameters"):
        return any_rope(getattr(config, "head_dim", None) or config.hidden_size // heads, rng)
    if key in ("hidden_act", "hidden_activation", "activation_function"):
        return rng.choice((*ACTIVATIONS, "gelu_fast", "relu2", "mish", "quick_gelu"))
    if key == "layer_types":
        return [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    if key == "no_rope_layers":
        return [rng.randint(0, 1) for _ in range(layers)]
    if VALUES.get(key) and (value is None or rng.random() < 0.7):
        return rng.choice(VALUES[key])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([1, 2, 3, 4, 8, value + 1, 2 * value])
    if isinstance(value, float):
        return rng.choice([value / 2, 2 * value, value + 0.1, 1.0])
    if isinstance(value, list):
        return value[::-1]
    return value if isinstance(value, str) else rng.choice([True, 1, 2, 0.5])


def any_rope(head_dim: int, rng: random.Random) -> dict:
    def of_layers() -> dict:
        kind = rng.choice(KINDS)
        factors = {key: [rng.uniform(1, 3) for _ in range(head_dim // 2)] for key in ("short_factor", "long_factor")}
        rope = {rng.choice(["rope_type", "type"]): kind, "factor": rng.choice([1.0, 2.0, 4])}
        rope |= {"rope_theta": rng.choice([100.0, 10000])} | (factors if kind == "longrope" else {})
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
        rope |= some(rng, {}, {"original_max_position_embeddings": rng.choice([32, 64, 1024])})
        keys = {"attention_factor": 1.3, "beta_fast": 16.0, "mscale": 0.7, "mscale_all_dim": 0.5, "truncate": False}
        keys |= {"beta_slow": 0, "partial_rotary_factor": 0.5}
        return rope | {key: value for key, value in keys.items() if rng.random() < 0.15}

    return {"full_attention": of_layers(), "sliding_attention": of_layers()} if rng.random() < 0.2 else of_layers()


if __name__ == "__main__":
    main()
