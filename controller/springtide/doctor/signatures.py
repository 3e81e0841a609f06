"""Whether bundles can be signed here and edges will accept them: the publisher's key, and the keys that edges trust."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from springtide.bundles.sign import sign, signature_problem
from springtide.doctor.finding import Finding, fine, fix, unknown
from springtide.errors import SpringtideError
from springtide.publication.folder import PublishFolder

PROBE = b"springtide doctor\n"
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_MAY_ANYTHING = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class File:
    """An existing file's owner; `mode` are its permission bits."""

    mode: int
    uid: int


@dataclass(frozen=True)
class Signatures:
    """`key` None: none was given. Errors are empty where it worked; None where it could not be tried."""

    allowed_signers: Path
    signers: File | None
    key: Path | None = None
    key_file: File | None = None
    sign_error: str | None = None
    trust_error: str | None = None
    # Each published bundle whose signature edges would refuse, and why.
    refused: Mapping[str, str] = field(default_factory=dict)
    verified: int = 0
    uid: int = 0


def gather(key: Path | None, allowed_signers: Path, folder: PublishFolder | None) -> Signatures:
    signers = _file(allowed_signers)
    sign_error = trust_error = None
    if key is not None and _file(key) is not None:
        try:
            signature = sign({"probe": PROBE}, key)["probe"]
        except SpringtideError as error:
            sign_error = str(error)
        else:
            sign_error = ""
            if signers is not None:
                problem = signature_problem(str(key), PROBE, signature, allowed_signers)
                trust_error = "" if problem is None else problem.message
    refused, verified = _published(folder, allowed_signers) if folder and signers else ({}, 0)
    return Signatures(
        allowed_signers=allowed_signers,
        signers=signers,
        key=key,
        key_file=None if key is None else _file(key),
        sign_error=sign_error,
        trust_error=trust_error,
        refused=refused,
        verified=verified,
        uid=os.geteuid(),
    )


def check(seen: Signatures) -> Iterator[Finding]:
    yield from _signers(seen)
    yield from _key(seen)
    for where, what in seen.refused.items():
        yield fix("signature", where, what, "publish a round again with --sign-key")
    if seen.verified:
        yield fine("signature", "published bundles", f"{seen.verified} would be accepted")


def _signers(seen: Signatures) -> Iterator[Finding]:
    where, name = str(seen.allowed_signers), "trusted keys"
    if seen.signers is None:
        yield fix(
            name, where, "does not exist, so that no bundle is accepted", "run edges.yml; docs/how-to/push-routes.md"
        )
    elif seen.signers.mode & OTHERS_MAY_WRITE or seen.signers.uid not in (0, seen.uid):
        what = f"mode {seen.signers.mode:04o}, owner {seen.signers.uid}: others than root can write it; edges refuse it"
        yield fix(name, where, what, f"chown root {where} && chmod 0644 {where}")
    else:
        yield fine(name, where, "only its owner can write it")


def _key(seen: Signatures) -> Iterator[Finding]:
    if seen.key is None:
        yield unknown("signing key", "--sign-key", "none is given", "on the publisher, give it")
        return
    where = str(seen.key)
    if seen.key_file is None:
        todo = "make one: docs/how-to/push-routes.md, Prepare"
        yield fix("signing key", where, "does not exist", todo)
        return
    if seen.key_file.mode & OTHERS_MAY_ANYTHING:
        what = f"mode {seen.key_file.mode:04o}: others can read it, and sign what every edge accepts"
        yield fix("signing key", where, what, f"chmod 0600 {where}; if others use this host, make a new key")
    elif seen.sign_error:
        yield fix("signing key", where, "does not sign", seen.sign_error.rpartition(": ")[2])
    elif seen.trust_error:
        todo = f"add its public half to {seen.allowed_signers}, and run edges.yml"
        yield fix("signing key", where, seen.trust_error, todo)
    elif seen.trust_error is None:
        yield unknown("signing key", where, "signs; whether edges trust it is not known", "fix the trusted keys first")
    else:
        yield fine("signing key", where, "signs, and is trusted")


def _file(path: Path) -> File | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return File(stat.S_IMODE(found.st_mode), found.st_uid)


def _published(folder: PublishFolder, allowed_signers: Path) -> tuple[dict[str, str], int]:
    """Signatures of the bundles that the next rollout would bring."""
    candidate = folder.resolved("candidate")
    refused, verified = {}, 0
    for path in sorted((candidate / "edges").glob("*.json")) if candidate else ():
        signature = path.with_name(f"{path.name}.sig")
        try:
            given = signature.read_bytes() if signature.exists() else None
            problem = signature_problem(str(path), path.read_bytes(), given, allowed_signers)
        except (OSError, SpringtideError) as error:
            refused[str(path)] = f"cannot be checked: {error}"
            continue
        if problem is None:
            verified += 1
        else:
            refused[problem.where] = problem.message
    return refused, verified
