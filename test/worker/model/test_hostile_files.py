"""Files and records of an outsider that take too much time or memory, each on the whole way of a run to its weights.

The process with limits reads them: the run or the record fails with its reason, this process needs little memory, and
the next model is read.
"""

import json
import re
import shutil
import struct
from pathlib import Path

import pytest

from build import TINY_CONFIG, a_spec
from gleaner_worker.failures import Failure
from gleaner_worker.limited import process
from gleaner_worker.model.files.model_source import find_model, read_config
from gleaner_worker.model.weights.weights import open_weights
from gleaner_worker.records.samples.sample import Reject
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_process import limited_settings

pytestmark = pytest.mark.slow

MOST_GROWTH = 300 << 20  # of this process, for any file
EXCEEDS = "CPU time|of memory|more memory or nests deeper"
LONG = "a" * 1_000_000
GROWS = (
    "{% set n = namespace(s='a' * 1000) %}{% for i in range(60) %}{% set n.s = GROWTH %}{% endfor %}{{ n.s | length }}"
)
# Each makes no prompt.
TEMPLATES = [
    "{{ 'a' * 10**12 }}",
    "{{ [1] * 10**12 }}",
    "{{ 9 ** 99999999 }}",
    "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(9999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
    "{% for i in range(99999) %}{% if range(99999) | select('none') | list %}{% endif %}{% endfor %}",
    "{% for x in [1, 2, 3] recursive %}{{ loop([1, 2, 3]) }}{% endfor %}",
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}x{% endif %}{% endmacro %}{{ m(50) }}",
    "{% for i in range(99999) %}" + "x" * 99_999 + "{% endfor %}",
    "{% set x %}{% for i in range(99999) %}" + "x" * 99_999 + "{% endfor %}{% endset %}",
    "{% for i in range(99999) %}{{ '" + "x" * 99_999 + "' }}{% endfor %}",
    "{% for i in range(99999) %}{% if long == long2 %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{% if 'b' in long %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{% if long is in long2 %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = long[1:] %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = long | upper %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = long.upper() %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = long.find('b') %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = long ~ i %}{% endfor %}",
    "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = n.l + [long.split('a')] %}{% endfor %}",
    "{% set n = namespace(l='x') %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
    "{% set n = namespace(l='x') %}{% for i in range(99) %}{% set n.l = {1: n.l, 2: n.l} %}{% endfor %}{{ n.l }}",
    "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
    "{% set n = namespace(t=1) %}{% for i in range(28) %}{% set n.t = (n.t, n.t) %}{% endfor %}{{ {}.get(n.t) }}",
    "{{ long.join(range(9999) | map('string') | list) | length }}",
    "{{ range(9999) | map('string') | join(long) | length }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:1000000000d}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=10**12) }}",
    "{{ 'a'.center(10**12) }}",
    "{{ 'a'.zfill(10**12) }}",
    "{{ 'a'.expandtabs(10**12) }}",
    "{{ 1.5 | round(10**12, 'ceil') }}",
    "{{ [1] | tojson(indent=10**12) }}",
    "{{ long | indent(10**12) }}",
    *(
        GROWS.replace("GROWTH", growth)
        for growth in (
            "n.s ~ n.s",
            "n.s + n.s",
            "n.s * 9",
            "n.s.replace('a', 'aaaaaaaaa')",
            "n.s | replace('a', 'aaaaaaaaa')",
            "'%s%s%s' % (n.s, n.s, n.s)",
            "'%s%s%s' | format(n.s, n.s, n.s)",
            "'{0}{0}{0}'.format(n.s)",
            "'{a}{a}{a}'.format_map({'a': n.s})",
            "n.s.join([n.s, n.s])",
            "[n.s, n.s] | join(n.s)",
            "[n.s, n.s] | string",
            "[n.s, n.s] | tojson",
            "n.s | list | tojson",
        )
    ),
    "{{ '%(a)4000000000d' % {'a': 1} }}",
    "{{ '%(a)4000000000d' | format(a=1) }}",
    "{% set x = ('f' * 2000000) | int(0, 16) %}{% set y = ('e' * 1000000) | int(0, 16) %}{{ x // y }}",
    "{% for i in range(999) %}{% set x = {}.fromkeys('a' * 100000000) %}{% endfor %}",
    "{% for i in range(9999) %}{% set x = ['a' * 60000000 ~ 'b'].count('a' * 60000000 ~ 'c') %}{% endfor %}",
    "{% set n = namespace(a=1, b=1) %}{% for i in range(40) %}{% set n.a = dict(a=n.a, b=n.a) %}"
    "{% set n.b = dict(a=n.b, b=n.b) %}{% endfor %}{% for i in [n.a, n.b] %}{{ loop.changed(i) }}{% endfor %}",
]
MANY = '{"x": [' + "[]," * 5_000_000 + "1]}"
DEEP = "[" * 1_000_000
NUMBER = '{"x": ' + "9" * 5_000_000 + "}"
EXPERTS = {"model_type": "mixtral", "num_local_experts": 1 << 24, "num_hidden_layers": 4096, "intermediate_size": 64}


def replaces(what, by, times=4):
    """A tokenizer.json whose normalizers replace a text again and again."""
    one = {"type": "Replace", "pattern": {"String": what}, "content": by}
    return normalizes({"type": "Sequence", "normalizers": [one] * times})


def normalizes(normalizer):
    return lambda text: json.dumps(json.loads(text) | {"normalizer": normalizer})


def chat(template):
    return lambda _: json.dumps({"chat_template": template})


def header(text):
    """The first file of weights, with this header."""
    return lambda _: struct.pack("<Q", len(text)) + text.encode()


# File of the model: what takes its place, for a run of one text. A text, or a function of the honest content.
FILES = {
    "nested Replace": ("tokenizer.json", replaces("e", "e" * 1000), f"tokenise lines 1 to 1 of .*({EXCEEDS})"),
    "nested Replace of the text that finds BOS": ("tokenizer.json", replaces("a", "a" * 1000), EXCEEDS),
    "Prepend of 30 MB": ("tokenizer.json", normalizes({"type": "Prepend", "prepend": "e" * 30_000_000}), EXCEEDS),
    "catastrophic expression": (
        "tokenizer.json",
        normalizes({"type": "Replace", "pattern": {"Regex": "(e+)+(e+)+(e|ee)+x"}, "content": ""}),
        None,
    ),
    "tokenizer nested deeply": ("tokenizer.json", DEEP, "Failed to read tokenizer.json"),
    "tokenizer of many values": ("tokenizer.json", MANY, "Failed to read tokenizer.json"),
    "config nested deeply": ("config.json", DEEP, "Failed to read config.json"),
    "config with a huge number": ("config.json", NUMBER, "Failed to read config.json"),
    "config of many values": ("config.json", MANY, "model_type is None"),
    "config with absurd sizes": ("config.json", json.dumps(TINY_CONFIG | EXPERTS), "num_local_experts is 16777216"),
    "tokenizer_config of many values": ("tokenizer_config.json", MANY.replace("[],", "{},"), None),
    "special tokens nested deeply": ("special_tokens_map.json", DEEP, "Failed to read special_tokens_map.json"),
    "generation_config nested deeply": ("generation_config.json", DEEP, "Failed to read generation_config.json"),
    "index of many values": ("model.safetensors.index.json", MANY, "index.json of .* it has no weight_map"),
    "index nested deeply": ("model.safetensors.index.json", DEEP, "Failed to read model.safetensors.index.json"),
    "header nested deeply": ("model.safetensors", header(DEEP), "Failed to read model.safetensors"),
    "header of many values": ("model.safetensors", header(MANY), "Failed to read model.safetensors"),
    "header beyond its limit": ("model.safetensors", header(" " * (17 << 20)), "the limit is 16777216"),
    "chat template nested deeply": ("tokenizer_config.json", chat("{{ " + "(" * 60_000 + " }}"), None),
    "chat template that compiles for long": (
        "tokenizer_config.json",
        chat("{{ 9" + "**9" * 30 + " }}" + "{% for i in range(99999) %}" * 18 + "{% endfor %}" * 18),
        None,
    ),
}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """read(folder, records, **spec) -> samples and rejects, after all that a worker reads of the model."""
    monkeypatch.setattr(process, "MEMORY_BYTES", 1 << 30)

    def run(folder, records, **changes):
        spec = a_spec(model=str(folder), max_seq_length=64, **changes)
        files = find_model(spec.model, str(tmp_path), None, generates=spec.generates)
        config, _ = read_config(spec, files.folder)
        settings = limited_settings(files.folder, spec, config.vocab_size, config.max_positions)
        try:
            path = tmp_path / "stream"
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            items = list(read_samples(str(path), "x", settings))
        finally:
            settings.close()
        open_weights(files.weights, config, config.num_layers, "fp32", spec.model)
        return items

    return run


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "content", "reason"), FILES.values(), ids=FILES)
def test_a_hostile_file_of_a_model_fails_the_run_in_little_memory(
    tmp_path, tiny_folder, read, name, content, reason, monkeypatch
):
    if reason is None or EXCEEDS in reason:  # a slow machine could reach this limit before the fault of another file
        monkeypatch.setattr(process, "CPU_S", 1.0)
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    if name.endswith("index.json"):
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    path = folder / name
    honest = path.read_text(encoding="latin-1") if path.exists() else "{}"
    made = content if isinstance(content, str) else content(honest)
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    spec = {"generate": {"max_new_tokens": 2, "temperature": 0}} if name.startswith("generation") else {}
    read(tiny_folder, [{"text": "hello"}])
    before = peak_bytes(reset=True)
    try:
        read(folder, [{"text": "h" + "e" * 2000}], **spec)
        assert reason is None
    except Failure as failure:
        assert failure.kind == "model"
        assert reason is None or re.search(reason, failure.reason), failure.reason
    assert peak_bytes() < before + MOST_GROWTH
    assert len(read(tiny_folder, [{"text": "hello"}])) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_that_needs_too_much_time_or_memory_makes_no_prompt(tiny_folder, read, template, monkeypatch):
    monkeypatch.setattr(process, "CPU_S", 0.2)
    try:
        (item,) = read(tiny_folder, [{"long": LONG + "b", "long2": LONG + "c"}], record={"template": template})
        assert isinstance(item, Reject)
    except Failure as failure:
        assert failure.kind == "stream" and re.search(f"template for line 1 of x: .*({EXCEEDS})", failure.reason)
    assert len(read(tiny_folder, [{"x": "the next record"}], record={"template": "{{ x }}"})) == 1


def test_a_limit_names_the_line_that_exceeds_it(tiny_folder, read, monkeypatch):
    monkeypatch.setattr(process, "CPU_S", 1.0)
    template = "{% for i in range(n) %}{% for j in range(n) %}{% endfor %}{% endfor %}{{ 1 / n }}"
    records = [{"n": n} for n in (1, 2, 0, 99_999, 4)]
    with pytest.raises(Failure, match="Failed to render the template for line 4 of x: it takes more CPU time"):
        read(tiny_folder, records, record={"template": template})
    one, half, problem = read(tiny_folder, records[:3], record={"template": template})
    assert (one.preview, half.preview, isinstance(problem, Reject)) == ("1.0", "0.5", True)


def test_a_chat_template_over_its_time_limit_fails_the_stream_and_names_the_line(
    tmp_path, tiny_folder, read, monkeypatch
):
    monkeypatch.setattr(process, "CPU_S", 1.0)
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    endless = "{% if messages[0].content == 'b' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(chat(endless + "{% endfor %}{% endif %}hi")(""))
    records = [{"messages": [{"role": "user", "content": content}]} for content in "ab"]
    with pytest.raises(Failure, match="line 3 of x: it takes more CPU time than the limit of its process; simplify"):
        read(folder, [{"text": "hi"}, *records])


def peak_bytes(reset=False):
    """The most memory of this process since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
