"""What a job needs before its process starts, and why it may be missing."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prepared:
    python: str  # path of the Python that runs the job
    source_folder: str | None  # checked out code, readable for the job user
    ran: dict  # as worker-api takes it
    environment: Mapping[str, str] = field(default_factory=dict)  # further variables of the job
    visible: tuple[str, ...] = ()  # further paths that the job reads


class SourceFailed(Exception):
    """The source or environment of a job cannot be prepared. cause: `source`, `setup`, `isolation` or `machine`."""

    def __init__(self, cause: str, reason: str):
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
