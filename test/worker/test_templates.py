"""record.template: what it may do, what it may not, and that no template takes the worker with it."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import a_spec
from gleaner_worker.failures import Failure
from gleaner_worker.records import sandbox
from gleaner_worker.records.prompts import make_prompt_writer, write_prompts
from gleaner_worker.records.reject_reason import RejectReason
from gleaner_worker.records.template import Template, TemplateProblem

pytestmark = pytest.mark.slow

LONG = "a" * 1_000_000
GROWS = (
    "{% set n = namespace(s='a' * 1000) %}{% for i in range(60) %}{% set n.s = GROWTH %}{% endfor %}{{ n.s | length }}"
)


def write(template, record, **changes):
    writer = make_prompt_writer(a_spec(record={"template": template} | changes), "/nowhere")
    prompts = write_prompts(record, writer)
    return prompts if isinstance(prompts, RejectReason) else next(prompts)


@pytest.mark.parametrize(
    ("template", "record", "expected"),
    [
        ("Q: {{ question }}\nA:\n", {"question": "why?"}, "Q: why?\nA:\n"),
        ("{{ record['a-b'] }}{{ record.c.d[0] }}", {"a-b": 1, "c": {"d": ["e"]}}, "1e"),
        ("{{ record }}", {"record": "its own field"}, "its own field"),
        ("{% for x in xs %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}", {"xs": "ab"}, "1a,2b"),
        ("  {% if true %}\n x{% endif %}\n", {}, "  \n x\n"),
        ("{{ xs | tojson }}", {"xs": ["<é>", None]}, '["<é>", null]'),
        ("{{ text }}", {"text": "{{ 1 / 0 }}"}, "{{ 1 / 0 }}"),
        ("{{ 'x' if missing is defined else 'y' }}", {}, "y"),
        ("{{ n * 2 }}{{ '-' * 3 }}{{ 2 ** 10 }}{{ [1] + [2] }}", {"n": 4}, "8---1024[1, 2]"),
        ("{{ '%05.1f|%s' % (x, y) }}{{ '{:>4}'.format(x) }}", {"x": 2.5, "y": None}, "002.5|None 2.5"),
    ],
)
def test_a_template_is_written_with_the_fields_of_the_record(template, record, expected):
    prompt = write(template, record)
    assert (prompt.content, prompt.is_complete) == (expected, False)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ question }}", "line 1: 'question' is undefined"),
        ("a\n\n{{ 1 / 0 }}", "line 3: ZeroDivisionError: division by zero"),
        ("{{ text.missing }}", "line 1: 'str object' has no attribute 'missing'"),
        ("{{ text + 3 }}", "line 1: TypeError"),
        ("{% include 'x' %}", "line 1: TypeError: no loader"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "line 1: access to attribute '__class__'"),
        ("{{ range.__init__.__globals__ }}", "line 1: access to attribute '__init__'"),
        ("{{ cycler.__init__.__globals__.os }}", "line 1: access to attribute '__init__'"),
        ("{{ '{0.__class__}'.format(text) }}", "line 1: access to attribute '__class__'"),
        ("{{ text | attr('__class__') }}", "line 1: access to attribute '__class__'"),
        ("{{ record.update(a=1) }}", "line 1: access to attribute 'update'"),
        ("{{ namespace(__class__=1) }}", "line 1: a namespace cannot hold '__class__'"),
        ("{% set n = namespace() %}{% set n._x = 1 %}", "line 1: a namespace cannot hold '_x'"),
        ("{{ strftime_now('%d') }}", "line 1: 'strftime_now' is undefined"),
        ("{{ lipsum() }}", "line 1: 'lipsum' is undefined"),
        ("{{ (1).to_bytes(9, 'big') }}", "line 1: access to attribute 'to_bytes'"),
        ("{{ text.encode() }}", "line 1: access to attribute 'encode'"),
    ],
)
def test_a_template_that_fails_on_a_record_rejects_it_with_the_reason(template, reason):
    bad = write(template, {"text": "x"})
    assert isinstance(bad, RejectReason)
    assert bad.text.startswith(f"cannot be written with record.template: {reason}")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("a\n{% if %}", "line 2: Expected an expression"),
        ("{{ a b }}", "line 1: "),
        ("{% nope %}", "line 1: Encountered unknown tag 'nope'"),
        ("{{ text | nope }}", "line 1: No filter named 'nope'"),
        ("{{ xs | random }}", "line 1: No filter named 'random'"),
        ("{% autoescape true %}{{ text }}{% endautoescape %}", "{% autoescape %} is for HTML"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "it is nested too deeply"),
        ("{{ 9" + "*9" * 20_000 + " }}", "it is nested too deeply"),
        ("{{ " + "9" * 5000 + " }}", "ValueError: Exceeds the limit"),
        ("x" * 2_000_000, "it is 2000000 characters long; the limit is 1048576"),
    ],
)
def test_a_template_that_cannot_be_read_fails_the_run_with_its_line(template, reason):
    with pytest.raises(Failure) as failure:
        write(template, {})
    assert failure.value.kind == "model"
    assert f"Failed to use record.template of run.json: {reason}" in failure.value.reason


@pytest.mark.parametrize(
    "template",
    [
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
        "{% set n = namespace(l='x') %}{% for i in range(99) %}{% set n.l = {1: n.l, 2: n.l} %}{% endfor %}",
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
    ],
)
def test_a_template_that_would_take_for_ever_or_all_memory_rejects_the_record(monkeypatch, template):
    monkeypatch.setattr(sandbox, "MAX_STEPS", sandbox.MAX_STEPS // 16)
    monkeypatch.setattr(sandbox, "MAX_CHARS", sandbox.MAX_CHARS // 16)
    bad = write(template, {"long": LONG + "b", "long2": LONG + "c"})
    assert isinstance(bad, RejectReason), bad.content[:100]
    assert "MemoryError" not in bad.text


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(50) }}",
        "{% for i in range(99999) %}{% if range(99999) | select('none') | list %}{% endif %}{% endfor %}",
    ],
)
def test_a_template_is_stopped_within_seconds(template):
    begin = time.monotonic()
    assert write(template, {}).text.endswith("it takes more than 2000000 steps")
    assert time.monotonic() - begin < 60, "it is 3 s where nothing else is running"


@pytest.mark.long
def test_what_a_template_uses_up_is_counted_anew_for_each_record():
    template = Template(
        "{% for i in range(99999) %}{% for j in 'abcd' %}{{ j }}{% endfor %}{% endfor %}", is_chat=False
    )
    assert {template.render({}) for _ in range(4)} == {"abcd" * 99_999}


def test_text_of_8_mib_is_written_and_a_longer_one_refused():
    template = Template("{{ text }}", is_chat=False)
    assert len(template.render({"text": "a" * (8 << 20)})) == 8 << 20
    with pytest.raises(TemplateProblem, match="it makes 8388609 characters; the limit is 8388608"):
        template.render({"text": "a" * ((8 << 20) + 1)})


def test_one_template_serves_several_threads_each_with_all_that_it_may_use_up(monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_STEPS", 300_000)
    template = Template(
        "{% for i in range(99999) %}{% for j in 'a' %}{% endfor %}{% endfor %}{{ text }}", is_chat=False
    )
    made = {}
    threads = [
        threading.Thread(target=lambda n=n: made.update({n: template.render({"text": str(n)})})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == {n: str(n) for n in range(4)}


def test_a_lone_surrogate_of_a_field_is_found_in_what_the_template_makes_of_it():
    assert write("ab{{ x }}", {"x": "\ud800"}).text == "`record.template` has a lone surrogate, \\ud800, at character 3"


pieces = st.sampled_from(
    [
        "{{ ",
        " }}",
        "{% for i in x %}",
        "{% endfor %}",
        "{% if x %}",
        "{% endif %}",
        "x",
        "| join",
        "* 9",
        "~ x",
        "[",
        "]",
        "(",
        ")",
        "'a'",
        "\n",
    ]
)


@settings(max_examples=150)
@given(
    st.lists(pieces, max_size=12).map("".join) | st.text(max_size=30),
    st.text(max_size=5) | st.lists(st.integers(), max_size=3),
)
def test_any_template_and_any_field_give_a_text_or_a_problem(source, field):
    try:
        assert isinstance(Template(source, is_chat=False).render({"x": field}), str)
    except TemplateProblem as problem:
        assert str(problem)
