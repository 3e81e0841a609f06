"""Judges whose signature counts: as ssh-keygen(1) does, which is asked the same."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit.edge import NAME, PROGRAM, bundle, make_key, sign

KINDS = {
    "ed25519": [],
    "ecdsa": ["-b", "256"],
    "ecdsa-384": ["-b", "384"],
    "ecdsa-521": ["-b", "521"],
    "rsa": ["-b", "2048"],
}


class Publisher:
    """Keys by kind, and one signed bundle of each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bundles: dict[str, Path] = {}
        self.public: dict[str, str] = {}
        for kind, size in KINDS.items():
            key = directory / kind
            options = ["-q", "-t", kind.split("-")[0], *size, "-N", "", "-C", "the publisher's key", "-f", str(key)]
            subprocess.run(["ssh-keygen", *options], check=True)
            path = directory / f"{kind}.json"
            path.write_text(json.dumps(bundle({"10.77.2.0/24": 83})))
            sign(path, key)
            self.bundles[kind], self.public[kind] = path, key.with_suffix(".pub").read_text().strip()

    def ours(self, path: Path, signers: Path) -> int:
        command = [str(PROGRAM), "verify", str(path), "--edge", NAME, "--allowed-signers", str(signers)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "panicked" not in done.stderr
        return done.returncode

    def theirs(self, path: Path, signers: Path) -> bool:
        verify = ["ssh-keygen", "-Y", "verify", "-I", "springtide", "-n", "springtide-bundle"]
        command = [*verify, "-f", str(signers), "-s", f"{path}.sig"]
        return subprocess.run(command, check=False, capture_output=True, input=path.read_bytes()).returncode == 0


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Publisher:
    return Publisher(tmp_path_factory.mktemp("keys"))


TODAY = time.strftime("%Y%m%d", time.gmtime())
LATER, EARLIER = f"{int(TODAY) + 10000}Z", f"{int(TODAY) - 10000}Z"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key_is_taken_where_it_is_allowed_and_only_there(publisher: Publisher, kind: str) -> None:
    signers = publisher.directory / "signers"
    path = publisher.bundles[kind]
    signers.write_text(f"# the fleet's\n\nspringtide {publisher.public[kind]}\n")
    assert (publisher.ours(path, signers), publisher.theirs(path, signers)) == (0, True)
    others = [public for name, public in publisher.public.items() if name != kind]
    signers.write_text("".join(f"springtide {public}\n" for public in others) + f"another {publisher.public[kind]}\n")
    assert (publisher.ours(path, signers), publisher.theirs(path, signers)) == (11, False)
    signers.write_text("")
    assert (publisher.ours(path, signers), publisher.theirs(path, signers)) == (11, False)


@pytest.mark.parametrize(
    ("before", "allowed"),
    [
        ('springtide namespaces="springtide-bundle"', True),
        ('springtide namespaces="git,springtide-*"', True),
        ('springtide namespaces="git"', False),
        ('springtide namespaces="!springtide-bundle,*"', False),
        ("springtide", True),
        ("ops@example.net,springtide", True),
        ("spring*", True),
        ("springtid?", True),
        ("!springtide,*", False),
        ("*,!springtide", False),
        ("springtide2", False),
        (f'springtide valid-before="{LATER}"', True),
        (f'springtide valid-before="{EARLIER}"', False),
        (f'springtide valid-after="{EARLIER}"', True),
        (f'springtide valid-after="{LATER}"', False),
        (f'springtide namespaces="springtide-bundle",valid-after="{EARLIER}",valid-before="{LATER}"', True),
        ("springtide cert-authority", False),
        ("springtide unknown-option", False),
    ],
)
def test_options_and_principals_are_judged_as_ssh_keygen_does(publisher: Publisher, before: str, allowed: bool) -> None:
    signers = publisher.directory / "signers"
    signers.write_text(f"{before} {publisher.public['ed25519']}\n")
    path = publisher.bundles["ed25519"]
    assert (publisher.ours(path, signers), publisher.theirs(path, signers)) == (0 if allowed else 11, allowed)


def test_a_time_without_its_zone_allows_nothing(publisher: Publisher) -> None:
    """It would be the edge's own time zone; ssh-keygen takes it as that."""
    signers = publisher.directory / "signers"
    signers.write_text(f'springtide valid-before="{LATER[:-1]}" {publisher.public["ed25519"]}\n')
    assert publisher.ours(publisher.bundles["ed25519"], signers) == 11


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_signature_with_one_byte_altered_is_never_taken(publisher: Publisher, data: st.DataObject) -> None:
    original = publisher.bundles["ed25519"]
    path = publisher.directory / "altered.json"
    path.write_bytes(original.read_bytes())
    raw = bytearray(original.with_name(f"{original.name}.sig").read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[position]))
    Path(f"{path}.sig").write_bytes(raw)
    signers = publisher.directory / "signers"
    signers.write_text(f"springtide {publisher.public['ed25519']}\n")
    ours = publisher.ours(path, signers)
    assert ours in (0, 11, 12)
    # A case that both take is the same signature in other white space or padding.
    assert ours != 0 or publisher.theirs(path, signers)


def test_a_key_for_another_purpose_is_of_no_use(publisher: Publisher, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    path = tmp_path / "b.json"
    path.write_text(json.dumps(bundle({"10.77.2.0/24": 83})))
    sign(path, key, "git")
    signers = tmp_path / "signers"
    signers.write_text(f"springtide {key.with_suffix('.pub').read_text()}")
    assert publisher.ours(path, signers) == 12
