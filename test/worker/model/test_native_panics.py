"""Panics of the tokenizer's native code: failures and rejects with a reason, never the end of the process."""

import json

import pytest

from build import a_spec, fails
from gleaner_worker.failures import raise_exits
from gleaner_worker.records.lines.rejected import Rejected
from gleaner_worker.records.samples.sample import Sample
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings
from gleaner_worker.records.tokens.bos import Bos
from gleaner_worker.records.tokens.tokenizer import Encoded, encode_texts, load_tokenizer

NO_BOS = Bos(None, False, "auto")
VOCABULARY = {chr(code): code - 97 for code in range(97, 123)}


def a_folder(tmp_path, **changes):
    """The folder of a tokenizer with one token for each letter."""
    parts = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None}
    model = {"type": "BPE", "vocab": VOCABULARY, "merges": [], "unk_token": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts | {"decoder": None, "model": model} | changes))
    return str(tmp_path)


SLOW = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}


def test_a_text_that_exceeds_the_retries_of_a_regex_is_rejected_alone(tmp_path):
    tokenizer = load_tokenizer(a_folder(tmp_path, pre_tokenizer=SLOW), "a model")
    good, bad, last = encode_texts(["abc", "a" * 40 + "b", "xyz"], tokenizer, NO_BOS)
    assert isinstance(good, Encoded) and isinstance(last, Encoded)
    assert (good.ids, last.ids) == ([0, 1, 2], [23, 24, 25])
    assert isinstance(bad, Rejected) and str(bad).startswith("cannot be tokenised")


@pytest.mark.parametrize("charsmap", ["AAAA", ""])
def test_a_tokenizer_that_panics_while_it_is_read_is_a_failure(tmp_path, charsmap):
    folder = a_folder(tmp_path, normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap})
    with fails("model", "Failed to read tokenizer.json of a model: .*precompiled_charsmap"):
        load_tokenizer(folder, "a model")


def test_a_tokenizer_that_panics_with_each_text_rejects_its_texts(tmp_path):
    unknown = {"SpecialToken": {"id": "[X]", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [unknown], "pair": [], "special_tokens": {}}
    tokenizer = load_tokenizer(a_folder(tmp_path, post_processor=template), "a model")
    made = encode_texts(["abc", "x"], tokenizer, NO_BOS)
    assert [str(reason) for reason in made] == ["cannot be tokenised: no entry found for key"] * 2


def test_token_ids_whose_decoder_panics_are_stored_without_a_preview(tmp_path):
    strip = {"type": "Strip", "content": "a", "start": 0, "stop": 500}
    folder, stream = a_folder(tmp_path, decoder=strip), tmp_path / "stream"
    stream.write_text('{"tokens": [0]}\n{"text": "b"}\n')
    settings = make_sample_settings(folder, a_spec(), len(VOCABULARY), 64)
    ids, text = read_samples(str(stream), "x", settings)
    assert isinstance(ids, Sample) and isinstance(text, Sample)
    assert (ids.token_ids.tolist(), ids.preview, text.preview) == ([0], "", "b")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_of_the_process_is_raised_again(error):
    with pytest.raises(error):
        raise_exits(error())
