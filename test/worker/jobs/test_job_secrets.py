"""Variables and secrets of jobs: the process has them, and nothing else that a person or another job reads."""

import contextlib
from pathlib import Path

import pytest

from gleaner_worker.failures import Failure
from gleaner_worker.jobs.user import FIRST_UID
from job_attempts import needs_root, start

pytestmark = [needs_root, pytest.mark.slow]

KEY = "key-that-nobody-may-see"
NAMED = {"WANDB_API_KEY": "wandb"}


def a_runner(jobs, given=lambda check: {"WANDB_API_KEY": KEY}, **order):
    return jobs.runner(more={"read_secrets": given}, **{"secrets": NAMED} | order)


def run(*arguments, **order):
    return a_runner(*arguments, **order).run()


def test_a_job_has_its_variables_and_its_secrets_and_those_of_the_agent_stay(jobs):
    check = '[[ $WANDB_API_KEY == key-that-nobody-may-see && $STEPS == 3 && $HOME != /here ]] && echo "$XLA_FLAGS"'
    env = {"STEPS": "3", "HOME": "/here", "XLA_FLAGS": "--mine"}
    assert run(jobs, command=check, env=env)["outcome"] == "completed"
    assert jobs.output == "--mine\n"


def test_the_output_and_the_error_of_a_job_show_no_secret(jobs):
    split = f"echo -n {KEY[:9]}; sleep 0.3; echo {KEY[9:]}; echo last: $WANDB_API_KEY; exit 3"
    ending = run(jobs, command=split)
    assert jobs.output == "***\nlast: ***\n"
    assert ending["error"] == "The process exited with 3: last: ***"
    code = "import os\nraise ValueError(os.environ['WANDB_API_KEY'])"
    ending = run(jobs, code=code)
    assert ending["error"] == "ValueError: ***" and KEY not in jobs.output and "ValueError: ***" in jobs.output


def test_only_the_processes_of_the_job_have_its_secrets_and_none_on_a_command_line(jobs):
    def owners():
        found = set()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                assert KEY.encode() not in (place / "cmdline").read_bytes()
                if KEY.encode() in (place / "environ").read_bytes():
                    found.add(place.stat().st_uid)
        return found

    wait = start(a_runner(jobs, command="until [[ -e go ]]; do sleep 0.1; done"), owners)
    assert min(owners()) >= FIRST_UID
    (jobs.home / "jobs" / "j1-e2" / "go").touch()
    wait()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Failure("model", "Failed to read secrets: worker-api may not read it: gcloud secrets …"), "setup"),
        (Failure("infrastructure", "Failed to read secrets: reset"), "machine"),
    ],
)
def test_a_job_whose_secrets_cannot_be_read_fails_before_its_process_with_the_reason(jobs, error, cause):
    def fail(check):
        raise error

    ending = run(jobs, fail, command="echo begun")
    assert (ending["outcome"], ending["cause"]) == ("failed", cause)
    assert ending["error"].endswith(error.reason) and jobs.output == ""


def test_jobs_with_other_variables_or_secrets_share_no_compiled_programs(jobs):
    plant = 'ls "$JAX_COMPILATION_CACHE_DIR"; echo x > "$JAX_COMPILATION_CACHE_DIR/jit_f-cache" || true'

    def found(env, secrets):
        ending = run(jobs, lambda _: dict.fromkeys(secrets, KEY), command=plant, env=env, secrets=secrets)
        assert ending["outcome"] == "completed"
        return jobs.output.split("bash:")[0]

    kinds = [({"A": "1"}, NAMED), ({"A": "2"}, NAMED), ({"A": "1"}, {"WANDB_API_KEY": "other"})]
    assert [found(*kind) for kind in kinds] == ["", "", ""]
    assert found(*kinds[0]) == "jit_f-cache\n"
