"""Chat templates in the style of well-known models, and messages for them; see make_golden_chat.py."""

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
# Many features of Jinja that the other styles lack, and a template without a BOS for a tokenizer that adds one.
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
