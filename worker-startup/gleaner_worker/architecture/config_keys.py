"""The keys of a config.json: those that this decoder obeys, those that cannot change what it computes, and the others.

`config_keys.json` has the keys that transformers knows, with the default of each; test/reference/config_keys.py makes
it, and `npm run test:reference` compares it. A key of the family's class that is neither obeyed nor harmless must have
its default, so that a new key of a later transformers is refused and not ignored. A key that transformers does not know
either is listed beside the run's model.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from .config_parser import Fields
from .families import DEFAULTS, FAMILIES, NEUTRAL, SIZE_KEYS, Family

# Keys that cannot change an activation or a greedy token, whatever their value, by the reason.
HARMLESS = {
    "they act in training alone": """
        attention_dropout attn_pdrop classifier_dropout embd_pdrop gradient_checkpointing hidden_dropout
        initializer_factor initializer_range init_std resid_pdrop router_aux_loss_coef router_jitter_noise""",
    "they choose what else a call returns": """
        output_attentions output_hidden_states output_router_logits return_dict use_cache""",
    "they belong to classifiers": """
        id2label label2id num_labels problem_type sep_token_id summary_activation summary_first_dropout
        summary_last_dropout summary_proj_to_labels summary_type summary_use_proj""",
    "they are ids of tokens, which the tokenizer and the rules of generation give": """
        bos_token_id boi_token_index eoi_token_index eos_token_id image_token_id image_token_index pad_token_id""",
    "they say how the file was written": """
        _name_or_path _sliding_window_pattern architectures auto_map dtype torch_dtype transformers_version""",
    "they choose among programs that differ in rounding alone": """
        attn_implementation chunk_size_feed_forward compile_config distributed_config experts_implementation
        pretraining_tp reorder_and_upcast_attn""",
    "they belong to models of several modalities": "mm_tokens_per_image text_config vision_config",
    "transformers warns about it, and computes the same": "is_decoder",
    "they are of further prediction heads, which transformers leaves out of the model": """
        mlp_layer_types mtp_layer_types mtp_mlp_layer_types mtp_per_layer_config num_mtp_layers""",
    "transformers obeys it in the families that obey it here, and Gemma 3 with images leaves it out": """
        final_logit_softcapping""",
}
_OBEYED_BY_ALL = {
    *("model_type", "layer_types", "head_dim", "num_key_value_heads", "rope_scaling", "rope_parameters"),
    *("original_max_position_embeddings", *SIZE_KEYS, *DEFAULTS),
}
_MOST_UNKNOWN = 100


@cache
def _known() -> dict[str, Any]:
    return json.loads(Path(__file__).with_suffix(".json").read_text())


@cache
def harmless_keys() -> frozenset[str]:
    return frozenset(key for keys in HARMLESS.values() for key in keys.split()) | set(_known()["generation"])


def obeyed_keys(family: Family) -> frozenset[str]:
    """The keys of the file that this decoder reads for the family, or compares with those that it reads."""
    own = (_OBEYED_BY_ALL | family.defaults.keys()) - NEUTRAL.keys() | family.reads
    by_file = {key for key in (family.experts, family.inner) if key} | set(family.renamed.values()) - {""}
    return frozenset({family.renamed.get(key, key) for key in own} | family.renamed.keys() | by_file)


def transformers_defaults(name: str) -> dict[str, Any]:
    """{key: default} of the keys that transformers knows for a family and that are neither obeyed nor harmless."""
    settled = obeyed_keys(FAMILIES[name]) | harmless_keys() | NEUTRAL.keys()
    return {key: default for key, default in _known()["families"][name].items() if key not in settled}


def refuse_keys(fields: Fields, name: str) -> None:
    """Adds a problem for each key of one object of the file that transformers obeys and this decoder does not."""
    for key, default in transformers_defaults(name).items():
        if fields.raw.get(key) not in (None, default):
            fields.refuse(key, "which transformers obeys, and this decoder does not support")


def unknown_keys(raw: dict) -> list[str]:
    """The keys of a config.json that neither Gleaner nor transformers' class of the family knows; at most 100."""
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        return []
    inner = FAMILIES[name].inner
    objects = [("", raw, name)]
    if inner and isinstance(raw.get(inner), dict):
        objects.append((f"{inner}.", raw[inner], f"{name}_text"))
    found = [
        prefix + key
        for prefix, fields, family in objects
        for key in fields.keys()
        - (obeyed_keys(FAMILIES[family]) | harmless_keys() | NEUTRAL.keys() | _known()["families"][family].keys())
    ]
    return sorted(key if len(key) <= 80 else f"{key[:77]}..." for key in found)[:_MOST_UNKNOWN]
