"""record.template: the text that it gives, and the errors of a template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import fails
from gleaner_worker.records.chat.template import Template, TemplateProblem
from gleaner_worker.records.lines.rejected import Rejected
from rendered_template import write


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
def test_a_template_is_rendered_with_the_fields_of_the_record(template, record, expected):
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
def test_a_template_that_fails_on_a_record_rejects_the_record_with_the_reason(template, reason):
    bad = write(template, {"text": "x"})
    assert isinstance(bad, Rejected)
    assert str(bad).startswith(f"cannot be written with record.template: {reason}")


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
        ("x" * 2_000_000, "it is 2000000 characters long; the limit is 131072"),
    ],
)
def test_an_unreadable_template_fails_the_run_with_its_line(template, reason):
    with fails("model") as failure:
        write(template, {})
    assert f"Failed to use record.template of run.json: {reason}" in failure.value.reason


def test_a_text_of_8_mib_is_rendered_and_a_longer_text_is_refused():
    template = Template("{{ text }}", is_chat=False)
    assert len(template.render({"text": "a" * (8 << 20)})) == 8 << 20
    with pytest.raises(TemplateProblem, match="it makes 8388609 characters; the limit is 8388608"):
        template.render({"text": "a" * ((8 << 20) + 1)})


def test_a_lone_surrogate_in_the_text_of_a_template_is_found():
    assert str(write("ab{{ x }}", {"x": "\ud800"})) == "`record.template` has a lone surrogate, \\ud800, at character 3"


pieces = st.sampled_from(
    "{{ , }},{% for i in x %},{% endfor %},{% if x %},{% endif %},x,| join,* 9,~ x,[,],(,),'a',\n".split(",")
)


@given(
    st.lists(pieces, max_size=12).map("".join) | st.text(max_size=30),
    st.text(max_size=5) | st.lists(st.integers(), max_size=3),
)
def test_any_template_and_any_field_give_a_text_or_a_problem(source, field):
    try:
        assert isinstance(Template(source, is_chat=False).render({"x": field}), str)
    except TemplateProblem as problem:
        assert str(problem)
