"""springtide-core as Python has it (controller/native)."""

MAX_DEFAULT_RESENT: int
MAX_ENTRIES: int
MAX_OPTED_OUT: int
MAX_RATE: int
MIN_RATE: int

# Field, what is wrong, and what to do.
Finding = tuple[str, str, str]

def shape_problem(content: bytes) -> Finding | None: ...
def bundle_problems(content: bytes) -> list[Finding]: ...
def destination_problem(prefix: str) -> str | None: ...
