"""The rules of greedy decoding, from the spec and the model's own generation_config.json.

transformers' `generate(do_sample=False)` follows the same keys. A key that changes its choice and has no counterpart
here is refused by name.
"""

from dataclasses import dataclass
from typing import Any

from ...architecture.config import DecoderConfig
from ...architecture.config_parser import shown
from ...failures import Failure
from ...model_files import GENERATION
from ...model_json import read_model_json

_MAX_BYTES = 1 << 20
# Keys that change greedy decoding, with the values that do not.
_NEUTRAL: dict[str, tuple] = {
    "bad_words_ids": (None,),
    "begin_suppress_tokens": (None,),
    "dola_layers": (None,),
    "exponential_decay_length_penalty": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "guidance_scale": (None, 1),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "no_repeat_ngram_size": (None, 0),
    "num_beams": (None, 1),
    "penalty_alpha": (None, 0),
    "prompt_lookup_num_tokens": (None,),
    "sequence_bias": (None,),
    "stop_strings": (None,),
    "suppress_tokens": (None,),
    "watermarking_config": (None,),
}


@dataclass(frozen=True)
class GenerationRules:
    """The rules for every prompt of a run."""

    new_tokens: int  # at most
    prompt_length: int  # tokens of a prompt, at most
    end_ids: tuple[int, ...]  # a token that ends an answer, and belongs to it
    penalty: float = 1.0  # divides the positive logits of tokens that the row has, and multiplies the negative ones


def read_generation_rules(
    folder: str, model: str, config: DecoderConfig, raw_config: dict, new_tokens: int, max_length: int
) -> GenerationRules:
    """Raises Failure("model") naming each key that cannot be followed."""
    raw = read_model_json(folder, GENERATION, model, _MAX_BYTES)
    end_ids = (raw if raw else _ends_of_config(raw_config)).get("eos_token_id")
    problems = [
        f"{key} of {GENERATION} is {shown(raw[key])}, which greedy decoding here does not do"
        for key, neutral in _NEUTRAL.items()
        if key in raw and raw[key] not in neutral
    ]
    ids = end_ids if isinstance(end_ids, list) else [] if end_ids is None else [end_ids]
    if not all(type(token) is int for token in ids):
        problems.append(f"eos_token_id is {shown(end_ids)}, not token ids")
    penalty = raw.get("repetition_penalty")
    penalty = 1.0 if penalty is None else penalty
    if type(penalty) not in (int, float) or not 0 < penalty <= 100:
        problems.append(f"repetition_penalty is {shown(penalty)}, not a number above 0")
    problems += _rope_problems(config, max_length)
    if max_length - new_tokens < 1:
        problems.append(
            f"generate.max_new_tokens is {new_tokens}, and a sample has at most {max_length} tokens with its prompt: "
            "lower it, or raise max_seq_length where the model has more positions"
        )
    if problems:
        raise Failure("model", f"Failed to generate tokens with {model}: {'; '.join(problems)}")
    return GenerationRules(new_tokens, max_length - new_tokens, tuple(ids), float(penalty))


def _ends_of_config(raw: dict) -> dict:
    inner: Any = raw.get("text_config")
    return raw if raw.get("eos_token_id") is not None or not isinstance(inner, dict) else inner


def _rope_problems(config: DecoderConfig, max_length: int) -> list[str]:
    limits = [rope.original_positions for rope in config.ropes if rope.kind == "longrope"]
    if not limits or max_length <= min(limits):
        return []
    return [
        f"its longrope turns all tokens of a sample anew beyond {min(limits)} tokens, and decoding keeps turned keys: "
        f"set max_seq_length to at most {min(limits):.0f}"
    ]
