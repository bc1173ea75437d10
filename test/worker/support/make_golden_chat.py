"""Makes golden_chat.jsonl: results of transformers on templates in the style of well-known models,
for tokenizers with and without a BOS before every text. A person runs this script.

    uv venv /tmp/golden && uv pip install --python /tmp/golden/bin/python -r test/worker/golden-requirements.txt
    /tmp/golden/bin/python test/worker/support/make_golden_chat.py

The fixture holds the files of each model's folder and, for each list of messages, the text and the token ids, or the
template's error.
"""

import json
import os
import tempfile

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from golden_chat_templates import CHATML, CHATS, GEMMA, LLAMA, MANY, MISTRAL

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden_chat.jsonl")
CORPUS = [
    "system user assistant model tool You are a helpful assistant. What is two and two? It is four.",
    "Cutting Knowledge Date: December 2023 Today Date: 26 Jul 2024",
    "the price of three apples and five pears is eleven dollars and sixty cents",
    '# Tools You may call one or more functions. {"name": "get_weather", "arguments": {"city": "Paris"}}',
]


def main() -> None:
    byte_level = {"bos": None, "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]}
    fixture = {
        "chatml": make(
            byte_level,
            {"chat_template": CHATML, "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ),
        "llama": make(
            {
                "bos": "<|begin_of_text|>",
                "special": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            },
            {"bos_token": {"content": "<|begin_of_text|>", "__type": "AddedToken"}, "eos_token": "<|eot_id|>"},
            {"chat_template.jinja": LLAMA},
        ),
        "gemma": make(
            {
                "bos": "<bos>",
                "special": ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"],
                "spaces": True,
            },
            {
                "chat_template": [{"name": "default", "template": GEMMA}, {"name": "rag", "template": "{{ nothing }}"}],
                "bos_token": "<bos>",
                "eos_token": "<end_of_turn>",
            },
        ),
        "mistral": make(
            {"bos": "<s>", "special": ["<s>", "</s>", "[INST]", "[/INST]"], "spaces": True},
            {"chat_template": MISTRAL},
            {"special_tokens_map.json": json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})},
        ),
        "many": make(
            {"bos": "<s>", "special": ["<s>", "<pad>"]},
            {"chat_template": MANY, "bos_token": "<s>", "pad_token": "<pad>"},
        ),
        "no-bos-anywhere": make(
            {"bos": None, "special": ["<s>"]},
            {"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "bos_token": "<s>"},
        ),
    }
    with open(FIXTURE, "w", encoding="utf-8") as file:
        for name, model in fixture.items():
            for entry in (model, *cases(name, model["files"])):
                file.write(json.dumps({"name": name} | entry) + "\n")


def make(tokenizer: dict, config: dict, files: dict[str, str] | None = None) -> dict:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    made = {"tokenizer.json": train(**tokenizer).to_str(), "tokenizer_config.json": json.dumps(config)}
    return {"bos": tokenizer["bos"], "files": made | (files or {})}


def train(bos: str | None, special: list[str], spaces: bool = False) -> Tokenizer:
    """Byte-level BPE; with `spaces` as in SentencePiece: a ▁ for each space and one before the text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=spaces))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if spaces:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360 + len(special),
        initial_alphabet=[] if spaces else alphabet,
        special_tokens=special + (alphabet if spaces else []),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if spaces:
        tokenizer = without_special(tokenizer, set(alphabet))
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def without_special(tokenizer: Tokenizer, names: set[str]) -> Tokenizer:
    """The bytes stay in the vocabulary without being added tokens."""
    raw = json.loads(tokenizer.to_str())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if token["content"] not in names]
    return Tokenizer.from_str(json.dumps(raw))


def cases(name: str, files: dict[str, str]) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        for file_name, text in files.items():
            with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
                file.write(text)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    made = []
    for chat in CHATS:
        if name not in chat.get("only", [name]):
            continue
        # The date of the template where there is no clock.
        options = {"tools": chat.get("tools"), "date_string": "26 Jul 2024"}
        options["add_generation_prompt"] = chat.get("add_generation_prompt", False)
        case = {
            "messages": chat["messages"],
            "tools": chat.get("tools"),
            "add_generation_prompt": options["add_generation_prompt"],
        }
        try:
            case["text"] = tokenizer.apply_chat_template(chat["messages"], tokenize=False, **options)
            case["ids"] = tokenizer.apply_chat_template(chat["messages"], tokenize=True, return_dict=False, **options)
        except Exception as error:
            case["error"] = str(error)
        made.append(case)
    return made


if __name__ == "__main__":
    main()
