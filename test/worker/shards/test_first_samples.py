"""samples.json: three samples as text, whatever the stream and the tokenizer."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from build import SMALL, a_stream, outputs, text_lines
from gleaner_worker.failures import Failure
from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.records.samples.tokenize_lines import LocalSettings
from gleaner_worker.records.tokens.spans import token_texts
from gleaner_worker.shards.first_samples import FirstSamples


def a_sample(index, length, **more):
    return Sample(index, np.arange(length, dtype=np.int32), more.pop("positions", None), "", False, **more)


def shown(items, texts=lambda ids: [f"{each} " for each in ids], special_ids=(0,)):
    first = FirstSamples()
    assert list(first.note(iter(items))) == items
    content = first.content(SimpleNamespace(texts=texts, special_ids=special_ids))
    assert content is None or len(content) < 1_000_000
    return content and json.loads(content)["samples"]


def test_the_first_three_samples_are_shown_and_nothing_without_a_sample():
    rejects = [Reject(index, "bad", index) for index in range(1000)]
    found = shown(
        [*rejects[:5], *(a_sample(5 + n, 300, line=9 + n) for n in range(4))], lambda ids: ["🙂\0" * 99] * len(ids)
    )
    assert [(each["sample"], each["line"], len(each["tokens"][9])) for each in found] == [
        (n, n + 5, 100) for n in (5, 6, 7)
    ]
    assert (found[0]["rows"], found[0]["mask"]) == (None, None)
    assert shown([*rejects, a_sample(1000, 1)]) is None


@pytest.mark.parametrize("length", [256, 257, 5000])
def test_the_ends_of_a_long_sample_are_shown_and_places_count_in_them(length):
    mask = (np.arange(length) == length - 1).astype(np.uint8)
    positions = np.array([0, 127, 128, length - 1], np.int32)
    asked = []
    (found,) = shown(
        [a_sample(0, length, positions=positions, mask=mask)],
        lambda ids: asked.append(len(ids)) or [f"{each} " for each in ids],
        [0, length - 2],
    )
    ends = [*range(128), *range(length - 128, length)]
    assert [int(token) for token in found["tokens"]] == ends and sum(asked) <= 264
    assert (found["left_out"], found["special"]) == (length - 256, [0, 254])
    assert found["rows"] == ([0, 127, 128, 255] if length == 256 else [0, 127, 255])
    assert found["mask"] == [0] * 255 + [1]


def a_byte_tokenizer():
    vocab = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30))
def test_the_texts_of_tokens_make_the_decoded_text(text):
    tokenizer = a_byte_tokenizer()
    ids = [tokenizer.token_to_id("<s>"), *tokenizer.encode(text).ids]
    texts = token_texts(ids, tokenizer)
    assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=False)
    assert texts[0] == "<s>" and len(texts) == len(ids)


def test_a_space_of_sentencepiece_is_with_its_word_and_a_character_with_its_last_byte():
    vocab = [("<unk>", 0.0), ("▁the", -1.0), ("▁cat", -1.0), ("<0xC3>", -9.0), ("<0xA9>", -9.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    assert token_texts([1, 2, 3, 4, 2], tokenizer) == ["the", " cat", "", "é", " cat"]


@pytest.mark.slow
@pytest.mark.parametrize("error", [Failure("model", "the decoder panics"), MemoryError()])
def test_a_stream_goes_on_without_the_samples(storage, extract, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(LocalSettings, "texts", fail)
    assert extract(a_stream(storage, text_lines(30)), shard_size_gb=SMALL) == "completed"
    assert "samples.json" not in outputs(storage) and "metadata.json" in outputs(storage)


@pytest.mark.parametrize("spans", [[], [[0, 2], [1, 3], [4, 5]], [[0, 6]]])
def test_the_tokens_of_pools_are_those_of_any_span(spans):
    (found,) = shown([a_sample(0, 6, pools=np.array(spans, np.int32).reshape(-1, 2))])
    wanted = sorted({place for begin, end in spans for place in range(begin, end)})
    assert found["rows"] == (None if len(wanted) == 6 else wanted)
