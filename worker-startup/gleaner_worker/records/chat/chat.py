"""Renders lists of messages with the model's chat template, with the result of transformers' apply_chat_template.

One difference is intended: the date never changes, because a prompt with today's date would differ tomorrow.
Templates that first ask whether `strftime_now` is defined (Llama 3) use the date that they name themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from gleaner_reader.format.added_tokens import CONFIG, SPECIAL, named_tokens

from ...model_files import TEMPLATES, names_in
from ...model_json import read_model_json, read_model_text
from ...spec.read_spec import is_template_variable
from ..lines.parse import kind_of
from ..lines.rejected import Rejected
from .template import Rendered, Template, TemplateProblem

_JINJA, _JSON = "chat_template.jinja", "chat_template.json"
_MAX_FILE_BYTES = 64 * 1024 * 1024
_SEARCHED_LISTS = 64
VARIABLES = "chat_template_kwargs"
_REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True)
class Chat:
    """The chat template of a model. `problem` states why a template is None."""

    template: Template | None
    tools_template: Template | None
    tokens: Mapping[str, str]  # special tokens as variables of the template, such as bos_token
    problem: str = ""
    adds_bos: bool | None = None  # add_bos_token of tokenizer_config.json
    variables: Mapping[str, Any] = field(default_factory=dict)  # further variables of the template

    def with_variables(self, variables: Mapping[str, Any]) -> "Chat":
        """The chat with more variables, which replace earlier ones."""
        return replace(self, variables={**self.variables, **variables}) if variables else self

    def render(self, messages: list[dict], add_generation_prompt: bool, tools: list[dict] | None = None) -> str:
        """The text of the messages, with all of its special tokens. Raises TemplateProblem."""
        return self.render_marked(messages, add_generation_prompt, tools)[0]

    def render_marked(
        self, messages: list[dict], add_generation_prompt: bool, tools: list[dict] | None = None
    ) -> Rendered:
        """The text, and its parts that the model wrote, where the template marks them. Raises TemplateProblem."""
        return self._template_for(tools).render_marked(self.values(messages, add_generation_prompt, tools))

    def marks_generation(self, tools: list[dict] | None) -> bool:
        """Whether the template marks the text that the model wrote, by {% generation %} blocks."""
        return self._template_for(tools).marks_generation

    def _template_for(self, tools: list[dict] | None) -> Template:
        template = self.template if tools is None else self.tools_template
        if template is None:
            raise TemplateProblem(self.problem)
        return template

    def values(self, messages: list[dict], add_generation_prompt: bool, tools: list[dict] | None) -> dict[str, Any]:
        """The variables of the template."""
        values = {"messages": [_normal(message) for message in messages], "tools": tools, "documents": None}
        return {**values, "add_generation_prompt": add_generation_prompt, **self.tokens, **self.variables}


def load_chat(folder: str, model: str) -> Chat:
    """Reads the model's chat template and special tokens.

    The templates are in the first of these places that has one: chat_template.jinja and the files of
    additional_chat_templates, tokenizer_config.json, chat_template.json. Of several templates, `default` is used, and
    `tool_use`, if it exists, for messages with tools.
    Raises Failure("model") when a file cannot be read. A template that cannot be used rejects only records with
    messages.
    """
    config = read_model_json(folder, CONFIG, model, _MAX_FILE_BYTES)
    texts = named_tokens({CONFIG: config, SPECIAL: read_model_json(folder, SPECIAL, model, _MAX_FILE_BYTES)})
    adds_bos = config.get("add_bos_token")
    adds_bos = adds_bos if isinstance(adds_bos, bool) else None
    sources = _files_of_templates(folder, model) or _sources(config.get("chat_template"))
    sources = sources or _sources(read_model_json(folder, _JSON, model, _MAX_FILE_BYTES).get("chat_template"))
    if not sources:
        problem = f"the model has no chat template (in {_JINJA} or {CONFIG})"
        return Chat(None, None, texts, problem, adds_bos)
    try:
        template = _compile(sources["default"]) if "default" in sources else None
        tools_template = _compile(sources["tool_use"]) if "tool_use" in sources else template
    except TemplateProblem as problem:
        return Chat(None, None, texts, str(problem), adds_bos)
    problem = f"the model has no default among its chat templates {', '.join(sorted(sources))[:200]}"
    return Chat(template, tools_template, texts, problem, adds_bos)


def _files_of_templates(folder: str, model: str) -> dict[str, str]:
    """Template name -> source, of the files that have nothing else. As in transformers, they replace all others."""
    found = {}
    for file in names_in(folder):
        name = "default" if file == _JINJA else file.removeprefix(f"{TEMPLATES}/").removesuffix(".jinja")
        if file in (_JINJA, f"{TEMPLATES}/{name}.jinja"):
            found[name] = read_model_text(folder, file, model, _MAX_FILE_BYTES) or ""
    return found


def check_messages(messages: object, field: str) -> None:
    """Raises Rejected, unless the value of `field` is a list of messages."""
    if not isinstance(messages, list) or not messages:
        raise Rejected(
            f"`{field}` is {'an empty list' if messages == [] else kind_of(messages)}, not a list of messages"
        )
    for number, message in enumerate(messages):
        where = f"`{field}[{number}]`"
        if not isinstance(message, dict):
            raise Rejected(f"{where} is not an object with `role` and `content`")
        if not isinstance(message.get("role"), str):
            raise Rejected(f"{where} has no `role` that is a string")
        content = message.get("content")
        if isinstance(content, list):
            if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
                raise Rejected(
                    f"{where} has a `content` that is a list, but not of parts such as {{type: text, text: …}}"
                )
            if any(part["type"] == "text" and not isinstance(part.get("text"), str) for part in content):
                raise Rejected(f"{where} has a part of type text without a `text` that is a string")
        elif content is not None and not isinstance(content, str):
            raise Rejected(f"{where} has a `content` that is neither a string nor a list of parts")


def check_variables(record: dict) -> dict[str, Any]:
    """The record's variables for the chat template. Raises Rejected for a variable that cannot reach it."""
    variables = record.get(VARIABLES)
    if variables is None:
        return {}
    if not isinstance(variables, dict):
        raise Rejected(f"`{VARIABLES}` is {kind_of(variables)}, not an object of variables")
    for name in variables:
        if not is_template_variable(name):
            raise Rejected(f"`{VARIABLES}` has {name[:40]!r}, which is not a variable that a record can set")
    return variables


def find_unsupported_parts(messages: list[dict], text: str) -> int | None:
    """The number of the first message whose list of parts is in `text` as Python prints it, or None.

    Templates that support only strings print such a list. Each search reads the whole text, so only the first lists
    are searched.
    """
    contents = enumerate(message.get("content") for message in messages)
    lists = ((number, content) for number, content in contents if isinstance(content, list) and content)
    for number, content in islice(lists, _SEARCHED_LISTS):
        if str(content) in text or str(content[0]) in text:
            return number
    return None


def _normal(message: dict) -> dict:
    """The message as in transformers: without null values, with the reasoning under each name that templates use."""
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[key] for key in _REASONING if key in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _compile(source: str) -> Template:
    try:
        return Template(source, is_chat=True)
    except TemplateProblem as problem:
        raise TemplateProblem(f"the model's chat template cannot be used: {problem}") from None


def _sources(templates: Any) -> dict[str, str]:
    """Template name -> source. templates: one source, a list of {name, template}, or an object of sources."""
    if isinstance(templates, str):
        return {"default": templates}
    if isinstance(templates, list):
        templates = {str(each.get("name")): each.get("template") for each in templates if isinstance(each, dict)}
    if not isinstance(templates, dict):
        return {}
    return {name: text for name, text in templates.items() if isinstance(text, str)}
