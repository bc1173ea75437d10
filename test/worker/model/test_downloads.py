"""The counts of downloads, which outlive the agent."""

import pytest

from gleaner_worker.storage.downloads import Downloads

BUCKET = "the-bucket"


def test_the_counts_of_each_way_continue_after_a_restart_of_the_agent(tmp_path):
    (tmp_path / "received").write_text("3 0 700 0\n")  # as startup.sh writes it
    first = Downloads(str(tmp_path), 3, BUCKET)
    first.add_from_hub(5)
    first.add_from_bucket(BUCKET, 20)
    first.add_from_bucket("another", 1)
    counts = {"nat_bytes": 5, "bucket_bytes": 720, "other_bytes": 1}
    assert first.report() == counts
    assert Downloads(str(tmp_path), 3, BUCKET).report() == counts


@pytest.mark.parametrize("line", ["2 1 1 1\n", "3 1 1\n", "3 1 -1 1\n", "3 1 x 1\n", "", "3 1 1 1 1\n"])
def test_a_file_of_another_incarnation_or_without_all_counts_is_ignored(tmp_path, line):
    (tmp_path / "received").write_text(line)
    assert sum(Downloads(str(tmp_path), 3, BUCKET).report().values()) == 0


def test_a_report_needs_no_disk(tmp_path):
    counted = Downloads(str(tmp_path / "absent"), 3, BUCKET)
    counted.add_from_hub(5)
    assert counted.report()["nat_bytes"] == 5
