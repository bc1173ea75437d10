"""Tokenises lines with the files of a model: for a process with limits, and for tests.

The files of a model and the records are an outsider's, so no other process of a worker or a command does this.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Tokenizer

from ...failures import Failure, raise_exits
from ...limited import step
from ...spec.spec import Spec
from ..lines.rejected import Rejected
from ..lines.select import Marks
from ..lines.stream import Line
from ..tokens.bos import Bos, bos_rule, bos_warning
from ..tokens.spans import token_texts
from ..tokens.tokenizer import Encoded, encode_complete, encode_ids, encode_texts, load_tokenizer
from .documents import Document
from .prompts import PromptWriter, make_prompt_writer
from .read_prompts import RenderedPrompt, read_prompts
from .sample import Reject
from .sample_settings import Documents, SampleSettings, TokenizerFacts, common_settings

_PREVIEW_CHARS = 200
# Longer texts are rejected or cut before they cost time and memory: no tokenizer makes longer tokens on average.
_MOST_CHARS_PER_TOKEN = 32
_LEAST_CHARS = 8192  # a few tokens may be longer


@dataclass(frozen=True)
class LocalSettings(SampleSettings):
    """Settings with the tokenizer and the templates of a run, for this process."""

    model: str
    facts: TokenizerFacts
    tokenizer: Tokenizer
    bos: Bos
    writer: PromptWriter
    keep: tuple[str, ...]

    def tokenize(self, batches: Iterable[list[Line]], name: str, check: Callable[[], None]) -> Generator[Documents]:
        for lines in batches:
            yield tokenize_lines(_checked(lines, check), name, self)

    def decode(self, token_ids: list[int]) -> str:
        try:
            return self.tokenizer.decode(token_ids, skip_special_tokens=False)
        except BaseException as error:
            raise_exits(error)
            return ""

    def texts(self, token_ids: list[int]) -> list[str]:
        return token_texts(token_ids, self.tokenizer)


def make_sample_settings(folder: str, spec: Spec, vocab_size: int, max_positions: int) -> LocalSettings:
    """Reads tokenizer.json and the chat template of a model's folder. Raises Failure("model")."""
    step.begin("model", f"read tokenizer.json of {spec.model}", "use another model")
    tokenizer = load_tokenizer(folder, spec.model)
    # Without added tokens: some models have more of them than embeddings (Gemma 3 1B has one for images). A record with
    # such a token is rejected.
    largest = max(tokenizer.get_vocab(with_added_tokens=False).values(), default=0)
    if largest >= vocab_size:
        raise Failure(
            "model",
            f"Failed to use the tokenizer of {spec.model}: it makes ids up to {largest}, the model has {vocab_size} "
            "embeddings; copy tokenizer.json and the safetensors files from one model",
        )
    writer = make_prompt_writer(spec, folder, tokenizer)
    step.begin("model", f"use tokenizer.json of {spec.model}", "use another model")
    bos = bos_rule(spec, tokenizer, writer.chat)
    warning = bos_warning(bos, writer.chat, spec.model)
    eos = writer.chat.tokens.get("eos_token")
    special = (id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    facts = TokenizerFacts(
        bos.token_id,
        None if eos is None else tokenizer.token_to_id(eos),
        tuple(special),
        (warning,) if warning else (),
    )
    common = common_settings(spec, vocab_size, max_positions, facts)
    return LocalSettings(
        **common, model=spec.model, facts=facts, tokenizer=tokenizer, bos=bos, writer=writer, keep=spec.keep
    )


def _checked(lines: list[Line], check: Callable[[], None]) -> Iterator[Line]:
    for line in lines:
        check()
        yield line


def tokenize_lines(lines: Iterable[Line], name: str, settings: LocalSettings) -> Documents:
    """The documents and rejects of the lines."""
    batches = read_prompts(lines, name, settings.writer, settings.keep)
    return [item for batch in batches for item in _tokenize(batch, name, settings)]


def _tokenize(batch: list[RenderedPrompt | Reject], name: str, settings: LocalSettings) -> Iterator[Document | Reject]:
    batch = [_limit(item, settings) for item in batch]
    if batch:
        what = f"tokenise lines {batch[0].line + 1} to {batch[-1].line + 1} of {name} with tokenizer.json of "
        step.begin("model", what + settings.model, "use another model, or remove these lines")
    prompts = [item.prompt for item in batch if isinstance(item, RenderedPrompt)]
    complete = [prompt for prompt in prompts if prompt.is_complete]
    plain = [prompt for prompt in prompts if isinstance(prompt.content, str) and not prompt.is_complete]
    has_spans = bool(settings.writer.spans.sources)
    complete_ids, plain_ids = (
        iter(
            encode(
                [str(prompt.content) for prompt in chosen],
                settings.tokenizer,
                settings.bos,
                [prompt.spans for prompt in chosen] if has_spans else None,
            )
        )
        for encode, chosen in ((encode_complete, complete), (encode_texts, plain))
    )
    for item in batch:
        if isinstance(item, Reject):
            yield item
            continue
        content = item.prompt.content
        if isinstance(content, str):
            made = next(complete_ids if item.prompt.is_complete else plain_ids)
        else:
            made = encode_ids(content, item.prompt.spans)
        try:
            if isinstance(made, Rejected):
                raise made
            yield _document(item, made, settings)
        except Rejected as reason:
            yield Reject(item.index, str(reason), item.line)


def _document(item: RenderedPrompt, encoded: Encoded, settings: LocalSettings) -> Document:
    ids = _checked_ids(encoded.ids, item, settings)
    content = item.prompt.content
    preview = content if isinstance(content, str) else settings.decode(content[:_PREVIEW_CHARS])
    end = settings.max_length if settings.cut is None else None  # no sample has the later tokens
    marks = encoded.marks and encoded.marks.first(end)
    if marks and not settings.selection.parsed.reduces_spans:
        marks = Marks(marks.marked)
    kept_ids = ids if end is None or len(ids) <= end else ids[:end].copy()
    return Document(item.index, item.line, kept_ids, len(ids), marks, preview[:_PREVIEW_CHARS], item.kept)


def _limit(item: RenderedPrompt | Reject, settings: LocalSettings) -> RenderedPrompt | Reject:
    """Rejects or cuts a text that is too long to be tokenised as a whole."""
    if isinstance(item, Reject) or settings.cut is not None or not isinstance(item.prompt.content, str):
        return item
    limit = max(_MOST_CHARS_PER_TOKEN * settings.max_length, _LEAST_CHARS)
    size = len(item.prompt.content)
    if size <= limit:
        return item
    if settings.over_long == "truncate":
        return replace(item, prompt=replace(item.prompt, content=item.prompt.content[:limit]), characters=size)
    reason = f"has {size} characters; a text of {settings.max_length} tokens (max_seq_length) has at most {limit}"
    return Reject(item.index, reason, item.line)


def _checked_ids(ids: list[int], item: RenderedPrompt, settings: LocalSettings) -> np.ndarray:
    """The ids, int32. Raises Rejected. A post-processor may add ids that the vocabulary lacks, as a record may."""
    if not ids:
        raise Rejected("has no tokens")
    if item.characters and len(ids) <= settings.max_length:
        raise Rejected(
            f"has {item.characters} characters, and its first {len(item.prompt.content)} make only {len(ids)} tokens"
        )
    with suppress(OverflowError):  # of an id that int32 cannot hold
        token_ids = np.array(ids, np.int32)
        if token_ids.min() >= 0 and token_ids.max() < settings.vocab_size:
            return token_ids
    position, token = next((at, token) for at, token in enumerate(ids) if not 0 <= token < settings.vocab_size)
    number = str(token) if abs(token) < 1 << 63 else "of more than 63 bits"
    raise Rejected(
        f"token id {number} at position {position} is not in the vocabulary (0 to {settings.vocab_size - 1})"
    )
