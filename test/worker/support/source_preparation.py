"""Preparations of jobs on one host: `prepare` is the fixture."""

import pytest

from build import bucket
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.source.prepare import Preparation
from gleaner_worker.source.private import Repositories
from job_attempts import UV_CACHE, a_host

NOTHING = {"jax_version": None, "setup_script": None, "config_file": None, "ramfs_dir": None}


@pytest.fixture
def prepare(storage, tmp_path, monkeypatch):
    """prepare(version, stop, **environment) prepares a job without a source, on a host whose jobs have no network."""
    monkeypatch.setenv("UV_CACHE_DIR", UV_CACHE)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    env = a_host(tmp_path / "home")
    preparation = Preparation(
        env["GLEANER_HOME"], bucket(), lambda: find_job_user(env, has_network=False), Repositories()
    )

    def run(version=1, stop=None, **environment):
        return preparation.prepare({"source": None, "environment": NOTHING | environment}, version, stop)

    return run
