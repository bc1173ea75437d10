"""Samples and rejects of a stream: token ids, lengths, and the tokenizer of a model."""

import gzip
import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from build import a_spec, fails
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.records.lines.stream import count_lines, read_lines
from gleaner_worker.records.samples.read_prompts import read_prompts
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.samples.samples import make_samples, read_documents, read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings


def test_every_line_becomes_one_sample_or_one_reject_in_order(read_items):
    items = read_items([{"text": f"number {i}"} if i % 3 else b"bad\n" for i in range(1500)])
    assert [item.index for item in items] == list(range(1500))
    assert [isinstance(item, Sample) for item in items] == [i % 3 > 0 for i in range(1500)]
    assert items[3].record() == {"line": 4, "sample_idx": 3, "reason": items[3].reason}


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([0, 600], "token id 600 at position 1 is not in the vocabulary (0 to 599)"),
        ([-1], "token id -1 at"),
        ([10**30], "token id of more than 63 bits at position 0"),
    ],
)
def test_token_ids_outside_the_vocabulary_are_rejected(read_items, ids, reason):
    (item,) = read_items([{"tokens": ids}])
    assert reason in item.reason


@pytest.mark.parametrize("given_", [{"text": ""}, {"tokens": []}])
def test_a_record_without_tokens_is_rejected(read_items, given_):
    assert read_items([given_])[0].reason == "has no tokens"


def make_folder(folder, vocabulary, post_processor=None, unknown="<unk>"):
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if post_processor:
        tokenizer.post_processor = post_processor
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_an_empty_text_is_rejected_although_the_tokenizer_adds_special_tokens(read_items, tmp_path):
    added = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    folder = make_folder(tmp_path, {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3}, added)
    empty, full, twice = read_items([{"text": ""}, {"text": "a a"}, {"tokens": [1, 1, 3]}], folder)
    assert empty.reason == "has no tokens"
    assert full.token_ids.tolist() == [1, 3, 3, 2]
    assert twice.token_ids.tolist() == [1, 1, 3]  # token ids of a record stay unchanged


def test_a_token_id_of_the_post_processor_outside_the_vocabulary_is_rejected(read_items, tmp_path):
    added = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 70_000)])
    folder = make_folder(tmp_path, {"<unk>": 0, "a": 1}, added)
    (item,) = read_items([{"text": "a a"}], folder)
    assert item.reason == "token id 70000 at position 2 is not in the vocabulary (0 to 599)"


def test_an_added_token_without_an_embedding_rejects_only_records_with_this_token(read_items, tmp_path):
    """In Gemma 3 1B, the tokenizer has a token for images that the model lacks."""
    folder = make_folder(tmp_path, {"<unk>": 0, "a": 1, "b": 2})
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.add_special_tokens(["<image>"])
    tokenizer.save(f"{folder}/tokenizer.json")
    good, bad = read_items([{"text": "a b"}, {"text": "a <image>"}], folder, vocab_size=3)
    assert good.token_ids.tolist() == [1, 2]
    assert bad.reason == "token id 3 at position 1 is not in the vocabulary (0 to 2)"
    with pytest.raises(Failure, match="makes ids up to 2, the model has 2 embeddings"):
        read_items([{"text": "a"}], folder, vocab_size=2)


def test_a_text_that_the_tokenizer_cannot_encode_is_rejected_alone(read_items, tmp_path):
    folder = make_folder(tmp_path, {"a": 0}, unknown="<missing>")
    items = read_items([{"text": "a"}, {"text": "b"}, {"text": "a a"}], folder)
    assert [isinstance(item, Sample) for item in items] == [True, False, True]
    assert items[1].reason.startswith("cannot be tokenised: WordLevel error: Missing [UNK] token")
    assert items[2].token_ids.tolist() == [0, 0]


def test_over_long_samples_are_rejected_with_their_length_or_truncated_on_request(read_items):
    lines = [{"tokens": [1] * 9}, {"tokens": [2] * 8}]
    rejected, kept = read_items(lines, max_seq_length=8)
    assert isinstance(rejected, Reject)
    assert "is 9 tokens long; the limit is 8" in rejected.reason
    assert not kept.truncated
    cut, kept = read_items(lines, max_seq_length=8, over_long="truncate")
    assert (cut.token_ids.tolist(), cut.truncated, kept.truncated) == ([1] * 8, True, False)


def test_the_positions_of_the_model_limit_the_length_of_a_sample(read_items):
    (item,) = read_items([{"tokens": [1] * 1025}], max_seq_length=4096)
    assert "is 1025 tokens long; the limit is 1024" in item.reason


def test_truncation_and_padding_of_the_tokenizer_file_are_ignored(tiny_folder, tmp_path, read_items):
    tokenizer = Tokenizer.from_file(f"{tiny_folder}/tokenizer.json")
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (there,), (here,) = (
        read_items([{"text": "one two three four"}], str(tmp_path)),
        read_items([{"text": "one two three four"}]),
    )
    assert there.token_ids.tolist() == here.token_ids.tolist()


def test_a_tokenizer_of_another_model_is_refused(tiny_folder):
    with fails("model", "makes ids up to 599, the model has 100 embeddings"):
        make_sample_settings(tiny_folder, a_spec(), 100, 1024)


def test_a_record_of_10_mb_is_rejected_and_the_next_record_is_read(read_items):
    big, small = read_items([{"text": "x" * 10_000_000}, {"text": "y"}])
    assert "bytes long; the limit is 8388608" in big.reason
    assert isinstance(small, Sample)


def test_lines_are_tokenised_in_batches_of_at_most_512(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    lines = [json.dumps({"text": f"number {n} " * (n % 50)}) if n % 7 else "bad" for n in range(1100)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    settings = make_sample_settings(tiny_folder, a_spec(), 600, 1024)
    batches = list(read_documents(str(path), "x", settings))
    assert [len(batch) for batch in batches] == [512, 512, 76]
    samples = list(make_samples(batches, settings))
    assert [repr(item) for item in samples] == [repr(item) for item in read_samples(str(path), "x", settings)]
    assert len(samples) == count_lines(str(path), "x") == 1100 and settings.samples_per_line == 1


def test_a_stop_ends_a_batch_at_the_next_line(tiny_folder, tmp_path):
    path, checked = tmp_path / "stream", []

    def check():
        checked.append(None)
        if len(checked) == 3:
            raise LeaseLost

    path.write_text('{"text": "a"}\n' * 100)
    documents = read_documents(str(path), "x", make_sample_settings(tiny_folder, a_spec(), 600, 64), check=check)
    with pytest.raises(LeaseLost):
        next(documents)
    assert len(checked) == 3


def test_a_batch_of_prompts_is_bounded_by_bytes(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    sizes = [3_000_000, 3_000_000, 10, 1_000_000, 7_000_000, 5]
    path.write_text("".join(json.dumps({"text": "x" * size}) + "\n" for size in sizes))
    settings = make_sample_settings(tiny_folder, a_spec(), 600, 1024)
    batches = read_prompts(read_lines(str(path), "x"), "x", settings.writer, ())
    held = [[len(item.prompt.content) for item in batch] for batch in batches]
    assert held == [[3_000_000], [3_000_000, 10, 1_000_000], [7_000_000], [5]]
    assert [len(batch) for batch in read_documents(str(path), "x", settings)] == [1, 3, 1, 1]


def test_a_truncated_text_has_the_first_tokens_of_the_whole_text(read_items):
    text = "".join(f"number {n} " for n in range(5000))
    (whole,) = read_items([{"text": text[:500]}], max_seq_length=1024)
    (cut,) = read_items([{"text": text}], max_seq_length=32, over_long="truncate")
    assert cut.token_ids.tolist() == whole.token_ids[:32].tolist()
    assert cut.truncated and not whole.truncated


def test_a_truncated_text_whose_beginning_makes_too_few_tokens_is_rejected(read_items, tmp_path):
    folder = make_folder(tmp_path, {"<unk>": 0, "a": 1})
    bad, good = read_items([{"text": "x" * 1_000_000}, {"text": "a " * 5000}], folder, over_long="truncate")
    assert bad.reason == "has 1000000 characters, and its first 8192 make only 1 tokens"
    assert len(good.token_ids) == 64


def test_tokens_of_a_truncated_text_that_no_sample_has_are_not_held(tiny_folder, tmp_path):
    path = tmp_path / "stream"
    path.write_text(json.dumps({"text": "one two " * 1000}) + "\n")
    settings = make_sample_settings(tiny_folder, a_spec(over_long="truncate"), 600, 1024)
    ((document,),) = read_documents(str(path), "x", settings)
    assert len(document.token_ids) == settings.max_length == 64 < document.length
