"""policy.yaml read."""

from __future__ import annotations

from pathlib import Path

from springtide.document import load, validate
from springtide.errors import InputError
from springtide.policy.contradictions import contradictions
from springtide.policy.whole import Policy


def load_policy(path: Path) -> Policy:
    """Raises InputError with every problem of the file."""
    document = load(path)
    policy = validate(document, Policy)
    problems = list(contradictions(document, policy))
    if problems:
        raise InputError(problems)
    return policy
