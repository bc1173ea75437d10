"""The prompts of shared/data as token ids: GSM8K questions and ARC tasks, with the lengths that they have.

`python -m extraction.prompts` prints the lengths as test/worker/prompt_lengths.jsonl has them.
"""

import json
import os

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gleaner_worker.records.chat.arc import make_arc_prompts, parse_task
from gleaner_worker.records.chat.chat import Chat

_DATA = os.path.join(os.path.dirname(__file__), "..", "..", "..", "shared", "data")


def real_prompts(vocab_size: int = 8192) -> dict[str, list[list[int]]] | None:
    """Token ids of every prompt by data set, or None without the folder of the data."""
    texts = real_texts()
    return None if texts is None else _tokenize(texts, vocab_size)


def real_texts() -> dict[str, list[str]] | None:
    """The text of every prompt by data set, or None without the folder of the data."""
    questions, tasks = _read_data("gsm8k-test.jsonl"), _read_data("arc-agi-training.jsonl")
    if questions is None or tasks is None:
        return None
    arc = make_arc_prompts(Chat(None, None, {}), None, "output-from-examples-v0")
    return {
        "GSM8K": [question["prompt"] for question in questions],
        "ARC": [arc.write(parse_task(task)) for task in tasks],
    }


def every_nth(prompts: list[list[int]], count: int) -> list[list[int]]:
    """`count` prompts over all of the data, so that short and long prompts keep their shares."""
    return prompts[:: max(1, len(prompts) // count)][:count]


def _read_data(name: str) -> list[dict] | None:
    path = os.path.join(_DATA, name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _tokenize(texts: dict[str, list[str]], vocab_size: int) -> dict[str, list[list[int]]]:
    """Encodes with a byte-level BPE of these texts. Every digit is a token, as in Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator([text for some in texts.values() for text in some], trainer)
    return {name: [encoding.ids for encoding in tokenizer.encode_batch(some)] for name, some in texts.items()}


if __name__ == "__main__":
    for name, prompts in (real_prompts() or {}).items():
        print(json.dumps([name, [len(ids) for ids in prompts]]))
