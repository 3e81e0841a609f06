"""One installation of the controller, as the environment names it: the variables are those of the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from springtide.errors import InputError, Problem
from springtide.fleet import Fleet, load_fleet
from springtide.policy import Policy, examined, load_policy
from springtide.store import Engine, Limits, Store, open_store
from springtide.store.migrations import require_current

STORE = "chdb:///var/lib/springtide/store"
STORE_WAIT_S = 60.0
FLEET = "/etc/springtide/fleet.yaml"
POLICY = "/etc/springtide/policy.yaml"
PUBLISH_DIR = "/var/lib/springtide/publish"


def seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    """The variable's number; an empty one is not set. Raises InputError."""
    text = environment.get(name)
    try:
        return float(text) if text else default
    except ValueError:
        raise InputError([Problem(name, "seconds", f"{text!r} is not a number", f"write {default:g}")]) from None


def read_policy(path: Path) -> Policy:
    """Every key is optional, and so is the default file. Raises InputError."""
    return load_policy(path) if _is_there(path) else Policy()


def examine_policy(path: Path) -> tuple[Policy, list[Problem]]:
    """As read_policy, with the contradictions between its keys, which do not end it."""
    return examined(path) if _is_there(path) else (Policy(), [])


def _is_there(path: Path) -> bool:
    return str(path) != POLICY or path.exists()


@contextmanager
def opened(
    url: str,
    wait_s: float,
    on_wait: Callable[[str], None],
    *,
    create: bool = False,
    check: bool = True,
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> Iterator[Store]:
    """The store; with `check`, an InputError unless it has the schema that this version needs."""
    store = open_store(url, create=create, wait_s=wait_s, on_wait=on_wait, limits=limits, engine=engine)
    try:
        if check:
            require_current(store)
        yield store
    finally:
        store.close()


@dataclass(frozen=True)
class Site:
    store_url: str
    store_wait_s: float
    fleet_path: Path
    policy_path: Path
    publish_dir: Path
    sign_key: Path | None
    cluster: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Site:
        """By SPRINGTIDE_STORE, _STORE_WAIT, _FLEET, _POLICY, _PUBLISH_DIR, _SIGN_KEY, _CLUSTER; empty: not set.

        Raises InputError.
        """
        key = environment.get("SPRINGTIDE_SIGN_KEY")
        return cls(
            environment.get("SPRINGTIDE_STORE") or STORE,
            seconds(environment, "SPRINGTIDE_STORE_WAIT", STORE_WAIT_S),
            Path(environment.get("SPRINGTIDE_FLEET") or FLEET),
            Path(environment.get("SPRINGTIDE_POLICY") or POLICY),
            Path(environment.get("SPRINGTIDE_PUBLISH_DIR") or PUBLISH_DIR),
            Path(key) if key else None,
            environment.get("SPRINGTIDE_CLUSTER") or None,
        )

    def fleet(self) -> Fleet:
        return load_fleet(self.fleet_path)

    def policy(self) -> Policy:
        return read_policy(self.policy_path)

    @contextmanager
    def open(self, *, check: bool = True, engine: Engine | None = None) -> Iterator[Store]:
        def print_waiting(holder: str) -> None:
            print(f"waiting up to {self.store_wait_s:g} s for {self.store_url}, held by {holder}")

        with opened(self.store_url, self.store_wait_s, print_waiting, check=check, engine=engine) as store:
            yield store
