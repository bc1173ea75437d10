"""The ways in which work on a stream can end early. Everything else that is raised is a bug."""


class Failure(Exception):
    """A stream cannot be finished here. `kind` says whose fault it is, and so what the control plane does next.

    stream: this stream's input is bad, or its stored shards contradict it; trying again gives the same.
    model: the model, the tokenizer or the spec cannot be used; every stream of the run has the same problem.
    infrastructure: this machine or its network; another worker may well succeed.
    """

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Damaged(Failure):
    """The bytes of a stored object differ from its checksum, on every download."""


class Unreachable(Failure):
    """The bucket did not answer for as long as it was asked: no other object can be read either."""


class LeaseLost(Exception):
    """The stream is no longer ours: leave it at once and write nothing more."""
