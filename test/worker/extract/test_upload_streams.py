"""The number of uploads at once, on networks that bound each stream and all streams."""

import pytest

from gleaner_worker.extract import upload_streams
from gleaner_worker.extract.upload_streams import UploadStreams


class Network:
    """Streams that send `each` bytes a second, and `together` at most, on a clock of its own."""

    def __init__(self, each, together):
        self.now_s, self.each, self.together = 0.0, each, together
        self.streams = UploadStreams(lambda: self.now_s)
        self.threads = 0
        self.counts = []

    def run(self, seconds, busy_share=1.0):
        """The streams upload shards of a second each. busy_share: of the seconds that have shards to upload."""
        for second in range(seconds):
            self.threads += self.streams.start()
            is_busy = second % 10 < 10 * busy_share
            for _ in range(self.threads if is_busy else 0):
                self.streams.begin()
            self.now_s += 1.0
            if is_busy:
                self.streams.sent(int(min(self.threads * self.each, self.together)))
                for _ in range(self.threads):
                    self.streams.end()
                    self.threads -= self.streams.leave()
            self.counts.append(self.threads)


@pytest.fixture(autouse=True)
def four_at_first(monkeypatch):
    monkeypatch.setattr(upload_streams, "FIRST", 4)


@pytest.mark.parametrize(
    ("each", "together", "least", "most"),
    [(0.15e9, 1.5e9, 9, 13), (0.1e9, 4e9, 40, 64), (1.2e9, 1.2e9, 4, 4), (0.05e9, 100e9, 60, 64)],
)
def test_streams_are_added_until_the_throughput_stops_growing(each, together, least, most):
    network = Network(each, together)
    network.run(200)
    assert least <= network.counts[-1] <= most


def test_streams_that_wait_for_shards_are_not_added():
    network = Network(0.15e9, 100e9)
    network.run(1000, busy_share=0.8)
    assert set(network.counts) == {4}


def test_a_network_that_becomes_wider_is_found_after_a_while():
    network = Network(0.15e9, 0.6e9)
    network.run(100)
    assert network.counts[-1] == 4
    network.together = 6e9
    network.run(400)
    assert network.counts[-1] >= 30


def test_measures_the_bytes_and_the_time_of_uploads_and_the_part_in_which_they_were_the_limit():
    network = Network(each=100, together=1000)
    network.run(10)  # four streams are busy all the time
    network.streams.begin()  # one alone: it is not the limit
    network.now_s += 4.0
    network.streams.sent(400)
    network.streams.end()
    network.now_s += 5.0  # nothing to upload
    assert network.streams.measured() == {"bytes": 4400, "seconds": 14.0, "bound_seconds": 10.0}
    network.streams.reset()
    assert network.streams.measured() == {"bytes": 0, "seconds": 0.0, "bound_seconds": 0.0}
