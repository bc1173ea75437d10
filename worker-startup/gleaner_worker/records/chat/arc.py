"""ARC tasks as prompts that end where the model begins the requested grid.

A task is {train: [{input, output}…], test: [{input, …}…]}. Of several tests the last is used; the outputs of tests are
never read. record.prompt_version selects the text:

    output-from-examples-v0   the examples, then the test's input; asks for its output
    output-from-examples-v1   the same in fewer words, without a system message
    input-from-inputs-v0      the inputs of the examples; asks for another such grid
    output-from-outputs-v0    the outputs of the examples; asks for another such grid

With a chat template the prompt is a system message (v0 alone), the user's message and the beginning of the answer. A
template that rejects or drops system messages gets both texts in one message. Without a template, blank lines divide
the parts.
"""

from dataclasses import dataclass

from .augment import Task
from .chat import Chat
from .grids import DEFAULT_ENCODER, OPENING, Encoder, Grid, parse_encoder
from .template import TemplateProblem

MAX_CELLS = 1 << 17  # of a task: seven times the largest task of 10 pairs of 30 x 30


@dataclass(frozen=True)
class Version:
    """The texts of a prompt version."""

    system: str
    task: str
    shows: str  # "pairs", "inputs" or "outputs"
    answer: str  # the beginning of the answer, before the grid


VERSIONS = {
    "output-from-examples-v0": Version(
        "You solve puzzles about grids of coloured cells. Each digit from 0 to 9 is a colour, and 0 is most often the "
        "background. In every puzzle one rule turns each input grid into its output grid. The rule may be about "
        "objects, their number, size, place or symmetry, or about how they move, touch and repeat.",
        "Find the rule in these examples. Then give the output grid of the test.",
        "pairs",
        "Output:\n",
    ),
    "output-from-examples-v1": Version(
        "", "One rule turns each input grid into its output grid. Apply it to the test.", "pairs", "Output:\n"
    ),
    "input-from-inputs-v0": Version(
        "", "These grids are alike in how they were made. Make another one of their kind.", "inputs", "Another grid:\n"
    ),
    "output-from-outputs-v0": Version(
        "", "These grids are alike in how they were made. Make another one of their kind.", "outputs", "Another grid:\n"
    ),
}


@dataclass(frozen=True)
class ArcPrompts:
    """Writes tasks as prompts."""

    version: Version
    encoder: Encoder
    chat: Chat
    has_system: bool  # whether the chat template accepts system messages

    @property
    def is_chat(self) -> bool:
        return self.chat.template is not None

    def write(self, task: Task) -> str:
        """Raises TemplateProblem."""
        question = user_message(task, self.version, self.encoder)
        opening = OPENING if self.encoder.to_text(("0",)).startswith(OPENING) else ""
        answer = f"{self.version.answer}{opening}"
        if not self.is_chat:
            return "\n\n".join(part for part in (self.version.system, question, answer) if part)
        return _render(self.chat, self.version.system, question, self.has_system) + answer


def make_arc_prompts(chat: Chat, encoder: str | None, version: str) -> ArcPrompts:
    """Raises ValueError that names an unknown encoder and the known ones. The spec has a known version."""
    has_system = chat.template is not None and _takes_system(chat)
    return ArcPrompts(VERSIONS[version], parse_encoder(encoder or DEFAULT_ENCODER), chat, has_system)


def user_message(task: Task, version: Version, encoder: Encoder) -> str:
    """The user's message: the instruction, and the grids that the version shows."""
    parts = [version.task]
    for number, (before, after) in enumerate(task.train, 1):
        if version.shows == "pairs":
            parts.append(f"Example {number}\n\nInput:\n{encoder.to_text(before)}\n\nOutput:\n{encoder.to_text(after)}")
        else:
            parts.append(f"Grid {number}:\n{encoder.to_text(before if version.shows == 'inputs' else after)}")
    if version.shows == "pairs":
        parts.append(f"Test\n\nInput:\n{encoder.to_text(task.test)}")
    return "\n\n".join(parts)


def parse_task(record: dict) -> Task:
    """Parses a record with an ARC task. Raises ValueError that names the wrong field or cell."""
    train, test = record.get("train"), record.get("test")
    if not isinstance(train, list) or not isinstance(test, list):
        raise ValueError("an ARC task needs lists `train` and `test`")
    if not train or not test:
        raise ValueError(f"`{'test' if train else 'train'}` is empty")
    pairs = []
    cells = 0
    for number, pair in enumerate(train):
        pairs.append((_grid(pair, "input", f"train[{number}]"), _grid(pair, "output", f"train[{number}]")))
        cells += sum(len(grid) * len(grid[0]) for grid in pairs[-1])
    test_input = _grid(test[-1], "input", f"test[{len(test) - 1}]")
    cells += len(test_input) * len(test_input[0])
    if cells > MAX_CELLS:
        raise ValueError(f"its grids have {cells} cells; the limit is {MAX_CELLS}")
    return Task(tuple(pairs), test_input)


def _grid(pair: object, key: str, where: str) -> Grid:
    if not isinstance(pair, dict):
        raise ValueError(f"{where} is not an object")
    rows = pair.get(key)
    where = f"{where}.{key}"
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        raise ValueError(f"{where} is not a list of rows")
    grid = []
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"{where} row {number} has {len(row)} cells, row 1 has {len(rows[0])}")
        for cell in row:
            if type(cell) is not int or not 0 <= cell <= 9:
                raise ValueError(f"{where} row {number} has a cell that is not a digit 0 to 9: {_shown(cell)}")
        grid.append("".join(map(str, row)))
    return tuple(grid)


def _shown(cell: object) -> str:
    return str(cell)[:20] if isinstance(cell, (int, float, str)) else "a list or an object"


def _render(chat: Chat, system: str, question: str, has_system: bool) -> str:
    messages = [{"role": "user", "content": question}]
    if system and has_system:
        messages.insert(0, {"role": "system", "content": system})
    elif system:
        messages[0]["content"] = f"{system}\n\n{question}"
    return chat.render(messages, add_generation_prompt=True)


def _takes_system(chat: Chat) -> bool:
    system, question = "a text of the system", "a text of the user"
    try:
        text = _render(chat, system, question, True)
    except TemplateProblem:
        return False
    return system in text and question in text
