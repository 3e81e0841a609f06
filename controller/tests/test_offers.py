"""Bundles where edges fetch them: whole objects, whatever is in their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from springtide.errors import SpringtideError
from springtide.publication.offers import offer, withdraw


def part(folder: Path, **edges: bytes) -> Path:
    folder.mkdir(parents=True)
    for name, content in edges.items():
        (folder / f"{name}.json").write_bytes(content)
        (folder / f"{name}.json.sig").write_bytes(b"signature\n")
    return folder


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    (tmp_path / "origin").mkdir()
    return tmp_path / "origin"


def test_an_object_is_the_signature_and_the_bundle_and_changes_only_with_them(tmp_path: Path, origin: Path) -> None:
    first = part(tmp_path / "first", a=b"1", b=b"1")
    assert offer(first, ["a"], origin) == ["a"]
    assert [path.name for path in origin.iterdir()] == ["a.bundle"]
    assert (origin / "a.bundle").read_bytes() == b"signature\n1"
    assert (origin / "a.bundle").stat().st_mode & 0o777 == 0o644
    assert offer(first, ["a", "b"], origin) == ["b"]


def test_another_content_has_another_second_by_which_web_servers_know_it(tmp_path: Path, origin: Path) -> None:
    offer(part(tmp_path / "first", a=b"1"), ["a"], origin)
    before = int((origin / "a.bundle").stat().st_mtime)
    offer(part(tmp_path / "next", a=b"2"), ["a"], origin)
    assert int((origin / "a.bundle").stat().st_mtime) > before


def test_what_is_in_the_place_of_an_object_is_neither_waited_for_nor_written_through(
    tmp_path: Path, origin: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"secret")
    os.mkfifo(origin / "a.bundle")
    (origin / "b.bundle").symlink_to(victim)
    (origin / ".b.bundle").symlink_to(victim)
    assert offer(part(tmp_path / "first", a=b"1", b=b"1"), ["a", "b"], origin) == ["a", "b"]
    assert victim.read_bytes() == b"secret"
    assert not (origin / "b.bundle").is_symlink()


def test_a_withdrawal_reaches_every_edge_that_can_be_offered_anything(tmp_path: Path, origin: Path) -> None:
    (origin / "others.bundle").write_bytes(b"of another fleet")
    assert withdraw(tmp_path / "publish", tmp_path / "missing") == [], "nobody pulls"
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    with pytest.raises(SpringtideError, match="link: is not a folder"):
        withdraw(tmp_path / "publish", tmp_path / "link")
    with pytest.raises(SpringtideError, match="has no bundles, so that edges that pull are not withdrawn"):
        withdraw(tmp_path / "publish", origin)
    part(tmp_path / "publish/candidate/off", a=b"off", b=b"off", c=b"off")
    (origin / "b.bundle").mkdir()
    with pytest.raises(SpringtideError, match=r"b\.bundle: cannot be written"):
        withdraw(tmp_path / "publish", origin)
    assert {path.name for path in origin.glob("[!.]*") if path.is_file()} == {"a.bundle", "c.bundle", "others.bundle"}
    (origin / "b.bundle").rmdir()
    assert withdraw(tmp_path / "publish", origin) == ["b"]
