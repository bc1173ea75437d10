"""Templates that take too much time or memory, each stopped by the limits of the process that renders."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gleaner_worker.records import render_process
from gleaner_worker.records.rejected import Rejected
from gleaner_worker.records.render_process import LimitExceeded
from gleaner_worker.records.template import Template, TemplateProblem
from rendered_template import write
from waiting import until

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parents[2] / "worker-startup"
LONG = "a" * 1_000_000
GROWS = (
    "{% set n = namespace(s='a' * 1000) %}{% for i in range(60) %}{% set n.s = GROWTH %}{% endfor %}{{ n.s | length }}"
)


@pytest.mark.sample(3)
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
    ],
)
def test_a_template_that_needs_too_much_time_or_memory_makes_no_prompt(monkeypatch, template):
    monkeypatch.setattr(render_process, "CPU_S", 0.1)
    try:
        bad = write(template, {"long": LONG + "b", "long2": LONG + "c"})
        assert isinstance(bad, Rejected), bad.content[:100]
    except LimitExceeded as limit:
        assert "of CPU time" in str(limit) or "memory" in str(limit)
    assert write("{{ x }}", {"x": "the next record"}).content == "the next record"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "template",
    [
        "{{ '%(a)4000000000d' % {'a': 1} }}",
        "{{ '%(a)4000000000d' | format(a=1) }}",
        "{% set x = ('f' * 2000000) | int(0, 16) %}{% set y = ('e' * 1000000) | int(0, 16) %}{{ x // y }}",
        "{% for i in range(999) %}{% set x = {}.fromkeys('a' * 100000000) %}{% endfor %}",
        "{% for i in range(9999) %}{% set x = ['a' * 60000000 ~ 'b'].count('a' * 60000000 ~ 'c') %}{% endfor %}",
        "{% set n = namespace(a=1, b=1) %}{% for i in range(40) %}{% set n.a = dict(a=n.a, b=n.a) %}"
        "{% set n.b = dict(a=n.b, b=n.b) %}{% endfor %}{% for i in [n.a, n.b] %}{{ loop.changed(i) }}{% endfor %}",
    ],
)
def test_a_template_that_no_counter_stops_ends_at_the_limits_of_its_process(monkeypatch, template):
    monkeypatch.setattr(render_process, "CPU_S", 0.1)
    with pytest.raises(LimitExceeded, match="of CPU time|1024 MiB of memory|process allows"):
        write(template, {})
    assert write("{{ x }}", {"x": "the next record"}).content == "the next record"


def test_threads_share_the_renderer_and_each_thread_gets_its_own_text():
    template = Template("{% for i in range(999) %}{{ text }}{% endfor %}", is_chat=False)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: template.render({"text": str(n)}), range(8)))
    assert made == [str(n) * 999 for n in range(8)]


def test_a_renderer_that_was_killed_is_replaced():
    template = Template("{{ text }}", is_chat=False)
    assert template.render({"text": "a"}) == "a"
    os.kill(children()[0], signal.SIGKILL)
    assert template.render({"text": "b"}) == "b"


def test_a_batch_continues_in_another_renderer_after_a_kill(monkeypatch):
    template = Template("{% for i in range(999) %}{{ text }}{% endfor %}", is_chat=False)
    values = [template.encode({"text": str(n)}) for n in range(500)]
    receive, answers = render_process.RenderProcess._receive, []

    def kill_at_100(renderer):
        answers.append(1)
        if len(answers) == 100:
            os.kill(children()[0], signal.SIGKILL)
        return receive(renderer)

    monkeypatch.setattr(render_process.RenderProcess, "_receive", kill_at_100)
    rendered = template.render_batch(values)
    assert [text for text, _ in rendered] == [str(n) * 999 for n in range(500)]


def test_an_exceeded_limit_names_the_position_of_its_record_in_the_batch(monkeypatch):
    monkeypatch.setattr(render_process, "CPU_S", 0.1)
    template = Template("{% for i in range(n) %}{% for j in range(n) %}{% endfor %}{% endfor %}{{ 1 / n }}", False)
    values = [template.encode({"n": n}) for n in (1, 2, 0, 99_999, 4)]
    with pytest.raises(LimitExceeded, match="more than 0.1 s of CPU time") as limit:
        template.render_batch(values)
    assert limit.value.position == 3
    one, half, problem = template.render_batch(values[:3])
    assert (one[0], half[0], isinstance(problem, TemplateProblem)) == ("1.0", "0.5", True)


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("limit", "value", "template", "reason"),
    [
        ("_WALL_S", 0.2, ENDLESS, "it gives no answer within 0.2 s"),
        ("_MAX_ANSWER_BYTES", 1000, "{{ 'a' * 2000 }}", r"its answer has 20\d\d bytes; the limit is 1000"),
    ],
)
def test_an_answer_that_is_late_or_too_large_is_reported_with_its_own_limit(
    monkeypatch, limit, value, template, reason
):
    compiled = Template(template, is_chat=False)
    with monkeypatch.context() as patch:
        patch.setattr(render_process, limit, value)
        with pytest.raises(LimitExceeded, match=f"^{reason}$"):
            compiled.render({})
    assert Template("{{ x }}", is_chat=False).render({"x": "next"}) == "next"


def children(of=None):
    """The processes of the renderer whose parent is `of`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                command = Path(f"/proc/{entry}/cmdline").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == (of or os.getpid()) and "renderer.py" in command:
                found.append(int(entry))
    return found


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_renderer_ends_with_its_worker_and_sees_no_environment_of_the_worker(end):
    code = (
        "from gleaner_worker.records.template import Template; import time\n"
        "print(Template('{{ a }}', False).render({'a': 1}), flush=True); time.sleep(1000)"
    )
    env = os.environ | {"PYTHONPATH": str(WORKER), "HF_TOKEN": "secret"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env) as worker:
        assert worker.stdout.readline() == b"1\n"
        (renderer,) = children(worker.pid)
        assert "secret" not in Path(f"/proc/{renderer}/environ").read_text()
        assert "Max open files            3 " in Path(f"/proc/{renderer}/limits").read_text()
        worker.send_signal(end)
    until(lambda: not os.path.exists(f"/proc/{renderer}"))
