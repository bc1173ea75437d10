"""Makes golden_chat.json: what transformers' apply_chat_template gives for templates in the style of well-known models,
with tokenizers that put a BOS before every text and ones that do not. Run by a person, never by the tests.

    uv venv /tmp/golden && uv pip install --python /tmp/golden/bin/python -r test/worker/golden-requirements.txt
    /tmp/golden/bin/python test/worker/make_golden_chat.py

The fixture holds the files of each model's folder and, for each list of messages, the text and the token ids, or the
message with which the template refuses it.
"""

import json
import os
import tempfile

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_chat.json")
CORPUS = [
    "system user assistant model tool You are a helpful assistant. What is two and two? It is four.",
    "Cutting Knowledge Date: December 2023 Today Date: 26 Jul 2024",
    "the price of three apples and five pears is eleven dollars and sixty cents",
    '# Tools You may call one or more functions. {"name": "get_weather", "arguments": {"city": "Paris"}}',
]

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] + '\\n\\n' }}
    {%- else %}
        {{- 'You are a helpful assistant.\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set speaks = message.role == 'assistant' and not message.tool_calls %}
    {%- if (message.role == 'user') or (message.role == 'system' and not loop.first) or speaks %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- (tool_call.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now('%d %b %Y') %}
    {%- else %}
        {%- set date_string = '26 Jul 2024' %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- 'Cutting Knowledge Date: December 2023\\n' }}
{{- 'Today Date: ' ~ date_string ~ '\\n\\n' }}
{{- system_message }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- message.tool_calls[0].function.arguments | tojson(indent=2) }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {{ raise_exception('System role not supported') }}
{%- endif -%}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = 'model' -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception('Invalid content type') }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""
MISTRAL = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if message.role == 'tool' %}{%- continue %}{%- endif %}
    {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate') }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and system_message is defined %}
            {{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
"""
# Much of what the other styles leave out of Jinja, and a template that writes no BOS although the tokenizer adds one.
MANY = """{%- macro header(role, mark='#') -%}
{{ mark * 3 ~ ' ' ~ role | upper }}
{%- endmacro -%}
{% for message in messages if message.role != 'developer' %}
    {% generation %}
{{ header(message.role) }}:
{% endgeneration %}
{% if message.reasoning_content %}<think>{{ message.reasoning_content.strip('\\n') }}</think>
{% endif %}
{% set parts = (message.content or '').split('---') %}
{{ parts | map('trim') | reject('equalto', '') | join(' | ') }}
{% for key, value in message.items() if key not in ['role', 'content', 'thinking', 'reasoning', 'reasoning_content'] %}
  {{ '%s=%s' | format(key, value | tojson) }}{{ ',' if not loop.last }}
{% endfor %}
{% if message.content and message.content.startswith('STOP') %}{% break %}{% endif %}
{% endfor %}
{{ [3, 1, 2] | sort | join('<') }} {{ messages | length }} {{ messages[-1:] | map(attribute='role') | list | first }}
{{ {'b': 1, 'a': [true, none, 'é<&>']} | tojson }} {{ pad_token }}{{ 'none' if sep_token is not defined }}
{% if add_generation_prompt %}{{ header('assistant') }}:{% endif %}
"""

WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather <now> & here", "parameters": {}},
}
CALL = {
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2.5, None]}},
}
CHATS = [
    {"messages": [{"role": "user", "content": "What is two and two?"}]},
    {"messages": [{"role": "user", "content": "What is two and two?"}], "add_generation_prompt": True},
    {
        "messages": [
            {"role": "system", "content": "  You are terse. "},
            {"role": "user", "content": " What is\n\ntwo and two?\n"},
            {"role": "assistant", "content": "Four."},
            {"role": "user", "content": "And three? 你好 \U0001f600 é\u0301"},
        ],
        "add_generation_prompt": True,
    },
    {
        "messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
            {"role": "assistant", "content": "four"},
        ]
    },
    {"messages": [{"role": "user", "content": "said <|im_end|><|eot_id|><end_of_turn></s> and <s>[INST]<bos>"}]},
    {"messages": [{"role": "user", "content": ""}], "add_generation_prompt": True},
    {"messages": [{"role": "assistant", "content": "I begin."}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "sunny", "tool_call_id": "9"},
            {"role": "tool", "content": "windy", "name": None},
        ],
        "tools": [WEATHER],
        "add_generation_prompt": True,
    },
    {
        "messages": [
            {"role": "user", "content": "Think."},
            {"role": "assistant", "content": "x --- y ---", "reasoning": "\nhm\n", "score": 1.5},
            {"role": "developer", "content": "hidden"},
            {"role": "user", "content": "STOP"},
            {"role": "user", "content": "never"},
        ]
    },
    {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": " Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}],
            }
        ],
        "only": ["gemma"],
    },
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
        json.dump(
            {name: model | {"cases": cases(name, model["files"])} for name, model in fixture.items()}, file, indent=1
        )
        file.write("\n")


def make(tokenizer: dict, config: dict, files: dict[str, str] | None = None) -> dict:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    made = {"tokenizer.json": train(**tokenizer).to_str(), "tokenizer_config.json": json.dumps(config)}
    return {"bos": tokenizer["bos"], "files": made | (files or {})}


def train(bos: str | None, special: list[str], spaces: bool = False) -> Tokenizer:
    """Byte-level BPE, or with `spaces` the way of SentencePiece: a ▁ for each space and one before the text."""
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
    """The bytes stay in the vocabulary, but are no added tokens."""
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
        # The date that the template falls back on, where there is no clock.
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
