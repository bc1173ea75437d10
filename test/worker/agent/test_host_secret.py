"""The secret of a host, as startup.sh makes it and keeps it."""

import os
import re

import pytest

from fake_cloud import SECRET
from startup_script import SOURCE, bash


def make_secret(tmp_path, **env):
    """Returns the secret that startup.sh uses. Its file holds exactly this secret and is private to its owner."""
    result = bash(f'{SOURCE}; make_secret; printf "%s" "$SECRET"', GLEANER_HOME=str(tmp_path), **env)
    assert (result.returncode, result.stderr) == (0, "")
    file = tmp_path / "host-secret"
    assert re.fullmatch(r"[0-9a-f]{64}", result.stdout)
    assert file.read_text() == f"{result.stdout}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["host-secret"]
    return result.stdout


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_a_reboot_keeps_the_secret_and_makes_it_private(tmp_path, mode):
    (tmp_path / "host-secret").write_text(f"{SECRET}\n")
    (tmp_path / "host-secret").chmod(mode)
    assert make_secret(tmp_path) == SECRET


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5e5e\n",
        f"{SECRET}5e\n",
        f"{SECRET.upper()}\n",
        f'{SECRET}\nurl = "http://127.0.0.1:1/"\n',
        f"x\n{SECRET}\n",
    ],
    ids=["empty", "short", "long", "upper case", "second line", "first line"],
)
def test_a_damaged_secret_is_made_again(tmp_path, text):
    (tmp_path / "host-secret").write_text(text)
    assert make_secret(tmp_path) not in text.split("\n")


def test_startup_ignores_a_secret_in_an_environment_variable(tmp_path):
    assert make_secret(tmp_path, SECRET=SECRET) != SECRET


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user needs root")
def test_a_secret_of_another_user_is_made_again(tmp_path):
    (tmp_path / "host-secret").write_text(f"{SECRET}\n")
    os.chown(tmp_path / "host-secret", 12345, 12345)
    assert make_secret(tmp_path) != SECRET
    assert (tmp_path / "host-secret").stat().st_uid == 0
