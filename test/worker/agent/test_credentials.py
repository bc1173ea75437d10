"""Commands on a machine without credentials of Google Cloud."""

import json
import os

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("named", [None, "/no/such/file.json"], ids=["absent", "named file absent"])
def test_a_verification_without_credentials_gives_one_line_with_the_remedy(tmp_path, forks, named):
    env = os.environ | {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        env.pop(name, None)
    if named:
        env["GOOGLE_APPLICATION_CREDENTIALS"] = named
    result = forks.command("gleaner_worker.verify", "--bucket", "b", "--run", "r", "--quiet", environment=env)
    assert (result.returncode, result.stderr) == (2, "")
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem.startswith("Failed to verify r: Failed to open Cloud Storage: DefaultCredentialsError: ")
    assert problem.endswith("; sign in with `gcloud auth application-default login`")
    assert "\n" not in problem
    assert (named or "") in problem
