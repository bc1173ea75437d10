"""Templates that take too much time or memory, each stopped by a count."""

import threading
import time

import pytest

from gleaner_worker.records import sandbox
from gleaner_worker.records.reject_reason import RejectReason
from gleaner_worker.records.template import Template
from rendered_template import write

pytestmark = pytest.mark.slow

LONG = "a" * 1_000_000
GROWS = (
    "{% set n = namespace(s='a' * 1000) %}{% for i in range(60) %}{% set n.s = GROWTH %}{% endfor %}{{ n.s | length }}"
)


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
def test_a_template_without_end_or_limit_rejects_the_record(monkeypatch, template):
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
def test_counts_start_again_for_each_record():
    template = Template(
        "{% for i in range(99999) %}{% for j in 'abcd' %}{{ j }}{% endfor %}{% endfor %}", is_chat=False
    )
    assert {template.render({}) for _ in range(4)} == {"abcd" * 99_999}


def test_threads_share_a_template_and_each_has_its_own_counts(monkeypatch):
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
