"""Signatures of bundles, made and checked by `ssh-keygen -Y`: the edges need nothing else to check them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from springtide.errors import InputError, Problem, SpringtideError

# A signature by the same key for another purpose is not valid here, nor is this one elsewhere (ssh-keygen(1) -n).
NAMESPACE = "springtide-bundle"
# The principal of the publishers' keys in allowed_signers.
SIGNER = "springtide"
# Seconds for a process, and for each signature: an agent may ask a token for it.
TIMEOUT_S, EACH_S = 30, 1
# Bundles that one process signs.
AT_ONCE = 500
# An armored signature by a 16384-bit RSA key is under 6 KB.
MAX_BYTES = 64 * 1024


def sign(contents: Mapping[str, bytes], key: Path) -> dict[str, bytes]:
    """Edge -> armored signature. `key` is a private key, or a public one whose private half an SSH agent holds.

    Raises InputError when the key is not usable, SpringtideError when ssh-keygen cannot run.
    """
    signatures: dict[str, bytes] = {}
    for edges in _batched(contents, AT_ONCE):
        # One process for many files: to begin one takes five times as long as to sign.
        with tempfile.TemporaryDirectory(prefix="springtide-") as directory:
            files = {edge: Path(directory, str(number)) for number, edge in enumerate(edges)}
            for edge, path in files.items():
                path.write_bytes(contents[edge])
            done = _ssh_keygen(["sign", "-f", str(key)], list(map(str, files.values())))
            signed = {edge: path.with_suffix(".sig") for edge, path in files.items()}
            if done.returncode or not all(path.exists() for path in signed.values()):
                fix = "name a private key that this user can read and that has no passphrase, or one in an SSH agent"
                raise InputError([Problem(str(key), "signing key", _complaint(done), fix)])
            signatures |= {edge: path.read_bytes() for edge, path in signed.items()}
    return signatures


def signature_problem(where: str, content: bytes, signature: bytes | None, allowed_signers: Path) -> Problem | None:
    """Why edges that trust `allowed_signers` would refuse this bundle; None when they would accept it."""
    if signature is None:
        return Problem(f"{where}.sig", "signature", "is missing", "render it again with `springtide bundle --sign-key`")
    with tempfile.NamedTemporaryFile(prefix="springtide-", suffix=".sig") as file:
        file.write(signature[: MAX_BYTES + 1])
        file.flush()
        done = _ssh_keygen(["verify", "-f", str(allowed_signers), "-I", SIGNER, "-s", file.name], content=content)
        if done.returncode == 0:
            return None
        intact = _ssh_keygen(["check-novalidate", "-s", file.name], content=content).returncode == 0
    if intact:
        message = f"its key is not in {allowed_signers} as one of {SIGNER!r}"
        return Problem(f"{where}.sig", "signature", message, "sign with an allowed key")
    message = f"does not match this content ({_complaint(done)})"
    return Problem(f"{where}.sig", "signature", message, "take both files from their source again")


def _ssh_keygen(
    arguments: Sequence[str], files: Sequence[str] = (), content: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command = ["ssh-keygen", "-Y", *arguments, "-n", NAMESPACE, *files]
    # A session of its own has no terminal, so a passphrase is an error instead of a prompt that nobody answers.
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    try:
        return subprocess.run(
            command,
            input=content,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S + EACH_S * len(files),
            start_new_session=True,
            env=environment,
        )
    except OSError as error:
        raise SpringtideError(f"ssh-keygen: {error}; install OpenSSH 8.2 or newer") from error
    except subprocess.TimeoutExpired as error:
        what = f"ssh-keygen: has not ended within {error.timeout:.0f} s"
        raise SpringtideError(f"{what}; see whether the key waits for somebody, or its agent is slow") from error


def _batched(names: Iterable[str], most: int) -> Iterator[list[str]]:
    """These names, at most so many at a time."""
    left = iter(names)
    while found := list(islice(left, most)):
        yield found


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """The first line of ssh-keygen's errors."""
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    complaints = [line.strip() for line in lines if line.strip() and not line.startswith("Signing data")]
    return complaints[0][:200] if complaints else f"ssh-keygen ended with exit code {done.returncode}"
