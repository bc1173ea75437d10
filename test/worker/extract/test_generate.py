"""Generated tokens: greedy decoding against transformers, and a run that stores prompts with their answers."""

import json
import shutil

import pytest

import golden_models as golden
from build import BUCKET, a_model, a_spec, a_stream, fails, outputs, text_lines
from environment import with_devices
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.run import Run
from gleaner_worker.model.files.generation_rules import read_generation_rules
from gleaner_worker.model.program.generation import Decoding
from read_shards import read_stream

pytestmark = pytest.mark.slow

NEW = 12
SPEC = {
    "generate": {"max_new_tokens": NEW, "temperature": 0},
    "tokens": "generated",
    "mask": "generated",
    "shard_size_gb": 0.00003,
}


@pytest.mark.long
@pytest.mark.parametrize(("ways", "names"), [(4, ["gemma3-text"]), (2, ["gpt-oss", "qwen3-moe"])])
def test_devices_that_share_weights_generate_the_same_tokens(forks, ways, names):
    variables = with_devices(4)
    ended = forks.run("devices_process:check_generated", names, ways, environment=variables)
    assert ended.returncode == 0, ended.stderr


def test_a_run_stores_prompts_with_their_answers_and_continues_with_the_same_bytes(
    storage, extract, verify, interrupted, tiny_folder, tmp_path
):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    # Without a penalty, this model repeats one token.
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.5}')
    model = a_model(a_spec(model=str(folder), keep=["text"], **SPEC))
    lines = [*text_lines(12), "junk", json.dumps({"tokens": list(range(1, 60))})]
    stream = a_stream(storage, lines)
    assert extract(stream, model=model, keep=["text"], **SPEC) == "completed"
    stored = outputs(storage)
    written = {line["sample_idx"]: line for line in map(json.loads, stored["generated_0001.jsonl"].splitlines())}
    samples = read_stream(stored, "safetensors")
    assert list(samples) == list(written) == list(range(12))  # the last prompt leaves no room for an answer
    for index, sample in samples.items():
        answer = written[index]["token_ids"]
        count = len(sample["token_ids"]) - len(answer)
        assert 1 <= len(answer) <= NEW and sample["token_ids"][count:] == answer
        assert sample["positions"] == list(range(count, count + len(answer)))
        assert sample["kept"] == {"text": json.loads(lines[index])["text"], "generated": written[index]["text"]}
    assert len({tuple(line["token_ids"]) for line in written.values()}) > 1
    first = Run(open_folder(f"gs://{BUCKET}/activations/my-run")).sample(7, 0)
    assert first.mask.tolist() == [0] * (len(first.mask) - NEW) + [1] * NEW
    report, problems = verify(model=str(folder), keep=["text"], **SPEC)
    assert report["ok"], problems
    for name in stored:
        if name != "generated_0001.jsonl":
            storage.clear(f"activations/my-run/tpu_7/{name}")
    assert interrupted(stream, 5, model=model, keep=["text"], **SPEC).outcome == "preempted"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoding, "run", lambda *_: pytest.fail("the answers are stored"))
        assert extract(stream, model=model, epoch=2, keep=["text"], **SPEC) == "completed"
    assert outputs(storage) == stored


def test_stored_answers_of_other_prompts_are_refused(storage, extract):
    stream = a_stream(storage, text_lines(3))
    extract(stream, **SPEC)
    storage.clear("activations/my-run/tpu_7/shard", "activations/my-run/tpu_7/metadata")
    with fails("stream", "generated_0001.jsonl: it was made with .*prompts_sha256"):
        extract(a_stream(storage, text_lines(2), name="datasets/my-run/stream_007.jsonl.gz"), **SPEC)


CASES = [
    ({"no_repeat_ngram_size": 3}, 8, "no_repeat_ngram_size of generation_config.json is 3"),
    ({"eos_token_id": ["a"]}, 8, "eos_token_id is .* not token ids"),
    ({"repetition_penalty": 0}, 8, "repetition_penalty is 0, not a number above 0"),
    ({}, 64, "max_new_tokens is 64, and a sample has at most 64 tokens with its prompt"),
]


@pytest.mark.parametrize(("generation", "new_tokens", "reason"), CASES)
def test_what_greedy_decoding_does_not_do_is_refused_by_name(tmp_path, generation, new_tokens, reason):
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    with fails("model", reason):
        read_generation_rules(str(tmp_path), "m", golden.config("qwen2"), {}, new_tokens, 64)


def test_a_longrope_model_generates_within_its_first_positions(tmp_path):
    config = golden.config("phi3")
    limit = int(config.ropes[0].original_positions)
    assert read_generation_rules(str(tmp_path), "m", config, {"eos_token_id": 7}, 8, limit).end_ids == (7,)
    with fails("model", f"set max_seq_length to at most {limit}"):
        read_generation_rules(str(tmp_path), "m", config, {}, 8, limit + 1)
