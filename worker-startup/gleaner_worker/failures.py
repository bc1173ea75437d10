"""The failures that end work on a stream early. Every other exception is a bug."""


class Failure(Exception):
    """This worker cannot finish the stream. `kind` states the cause, which decides what the control plane does next.

    stream: the stream's input is bad, or its stored shards contradict it; a second attempt fails in the same way.
    model: the model, the tokenizer or the spec cannot be used; every stream of the run has the same problem.
    hub: the model does not arrive; neither the stream nor this machine is at fault, and a later try may succeed.
    infrastructure: this machine or its network fails; another worker may succeed.
    contradiction: the object that exists with other bytes than this worker made, and the digests of both, for
    worker-api; None for every other failure.
    """

    def __init__(self, kind: str, reason: str, contradiction: dict[str, str] | None = None):
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.contradiction = contradiction


class Damaged(Failure):
    """The bytes of a stored object differ from its checksum on every download."""


class Unreachable(Failure):
    """The bucket gave no answer until the time limit, so no other object can be read either."""


class OutOfMemory(Failure):
    """The devices had too little memory for a step that was planned to fit."""


def raise_exits(error: BaseException) -> None:
    """Raises an exit of the process again. Every other error is a failure, also a panic of native code, which Python
    raises as a BaseException."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


class Interrupted(Exception):
    """The work ends before the first shard: nothing is stored, and another worker may begin."""


class LeaseLost(Exception):
    """Another worker may hold the stream now: stop at once and write nothing more."""
