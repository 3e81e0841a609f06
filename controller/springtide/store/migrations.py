"""The numbered migrations of the schema: which are applied, pending or changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from springtide.errors import InputError, Problem
from springtide.store import cluster as clusters
from springtide.store.base import Store
from springtide.store.files import migrations_folder, sql

TABLE = """
create table if not exists schema_migrations$on_cluster (
    number UInt32,
    name String,
    checksum FixedString(64),
    applied_at DateTime('UTC') default now()
)
engine = ${replicated}ReplacingMergeTree$replica
order by number
"""
_FUNCTIONS = "from system.functions where startsWith(name, 'springtide_') and origin = 'SQLUserDefined'"


@dataclass(frozen=True)
class Migration:
    """A file of sql/migrations: a template (store/cluster.py lists its holes), known by its text for one server."""

    number: int
    path: Path
    template: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    def rendered(self, cluster: str | None) -> list[str]:
        """The statements for one server, or for a cluster; raises InputError for one that lacks a hole."""
        return clusters.render(self.template, cluster, str(self.path))


@dataclass(frozen=True)
class State:
    number: int
    name: str
    state: Literal["applied", "pending", "changed", "unknown"]
    applied_at: str | None


def read_migrations(folder: Path | None = None) -> list[Migration]:
    """Every NNNN_name.sql, in order; raises InputError when a number is used twice or is missing, and for
    a hole that is not known."""
    paths = sorted((folder or migrations_folder()).glob("*.sql"))
    for path in paths:
        if not re.fullmatch(r"[0-9]{4}_[a-z0-9_]+\.sql", path.name):
            fix = "call it NNNN_name.sql, of lower-case letters, digits and underscores"
            raise InputError([Problem(str(path), "name", "is not a valid name of a migration", fix)])
    migrations = [
        Migration(int(path.name[:4]), path, text, clusters.plain(text, str(path)))
        for path, text in ((path, path.read_text()) for path in paths)
    ]
    if migrations and migrations[0].number != 1:
        what, fix = "is the first one, and its number is not 0001", "restore the missing files before it"
        raise InputError([Problem(str(migrations[0].path), "number", what, fix)])
    for before, migration in pairwise(migrations):
        if migration.number == before.number:
            message = f"has the number of {before.path.name}"
            raise InputError([Problem(str(migration.path), "number", message, "use the next free one")])
        if migration.number != before.number + 1:
            message = f"follows {before.path.name}: {before.number + 1:04} is missing"
            raise InputError([Problem(str(migration.path), "number", message, "restore the missing file")])
    return migrations


def status(store: Store, migrations: Sequence[Migration]) -> list[State]:
    """Each migration compared with what the store has recorded as applied."""
    applied = _applied(store)
    states = []
    for migration in migrations:
        checksum, applied_at = applied.pop(migration.number, (None, None))
        state: Literal["applied", "pending", "changed"]
        state = "pending" if checksum is None else "applied" if checksum == migration.checksum else "changed"
        states.append(State(migration.number, migration.path.name, state, applied_at))
    states += [State(number, "(no such file)", "unknown", applied_at) for number, (_, applied_at) in applied.items()]
    return states


def refuse_differences(store: Store, states: Sequence[State]) -> None:
    """Raises InputError when an applied migration differs from its file, or has none."""
    problems = []
    for state in states:
        if state.state == "changed":
            where = str(migrations_folder() / state.name)
            message = f"differs from what was applied to {store.url} at {state.applied_at}"
            problems.append(Problem(where, "checksum", message, "restore the file; changes go into a new migration"))
        elif state.state == "unknown":
            message = f"has migration {state.number}, which this version of springtide does not have"
            problems.append(Problem(store.url, "schema", message, "use the version that applied it, or a newer one"))
    if problems:
        raise InputError(problems)


def migrate(store: Store, migrations: Sequence[Migration], cluster: str | None = None) -> list[Migration]:
    """Apply what is pending, in order; returns what was applied. Raises InputError before changing anything when an
    applied file differs. Statements are idempotent: an interrupted run is simply repeated, and two at once do the same
    work twice. With `cluster`, every statement runs on the cluster. Functions come first: they belong to the server
    and not to the database, so that a database which was moved to another server lacks them."""
    states = status(store, migrations)
    refuse_differences(store, states)
    pending_numbers = {state.number for state in states if state.state == "pending"}
    pending = [migration for migration in migrations if migration.number in pending_numbers]
    # All of them, before the first is sent: one that lacks a hole changes nothing.
    statements = {migration.number: migration.rendered(cluster) for migration in pending}
    for statement in functions_to_create(store, cluster):
        store.execute(statement)
    if pending:
        for statement in bookkeeping(cluster):
            store.execute(statement)
    for migration in pending:
        for statement in statements[migration.number]:
            store.execute(statement)
        row = {"number": migration.number, "name": migration.path.name, "checksum": migration.checksum}
        store.insert("schema_migrations", [row])
    return pending


def bookkeeping(cluster: str | None) -> list[str]:
    """Statements that create the table which records what was applied."""
    return clusters.render(TABLE, cluster, "schema_migrations")


def functions(cluster: str | None) -> list[str]:
    """Statements that create or replace the functions of sql/functions.sql."""
    return clusters.render(sql("functions"), cluster, "sql/functions.sql")


def functions_to_create(store: Store, cluster: str | None) -> list[str]:
    """Statements of functions() whose function the server lacks or has with another definition. For a cluster all of
    them: one server does not know the functions of the others."""
    if cluster:
        return functions(cluster)
    made = {row["text"] for row in store.query(f"select create_query as text {_FUNCTIONS}")}
    wanted = {
        statement: store.query("select formatQuerySingleLine({sql:String}) as text", {"sql": statement})[0]["text"]
        for statement in functions(None)
    }
    return [statement for statement, text in wanted.items() if text.replace("OR REPLACE ", "", 1) not in made]


def require_current(store: Store) -> None:
    """Raises InputError unless the store's schema is the one that this version reads and writes."""
    states = status(store, read_migrations())
    refuse_differences(store, states)
    pending = [state.name for state in states if state.state == "pending"]
    if pending:
        message = f"lacks {len(pending)} migrations, {pending[0]} first"
        raise InputError([Problem(store.url, "schema", message, "run `springtide migrate`")])
    made = {row["name"] for row in store.query(f"select name {_FUNCTIONS}")}
    # By name only: another version, which may share the server, has defined them alike.
    missing = [name for name in (statement.split()[4] for statement in functions(None)) if name not in made]
    if missing:
        message = f"lacks {len(missing)} functions, {missing[0]} first"
        raise InputError([Problem(store.url, "schema", message, "run `springtide migrate`")])


def _applied(store: Store) -> dict[int, tuple[str, str]]:
    known = store.query(
        "select 1 as known from system.tables where database = currentDatabase() and name = {t:String}",
        {"t": "schema_migrations"},
    )
    if not known:
        return {}
    rows = store.query("select number, checksum, applied_at from schema_migrations final order by number")
    return {row["number"]: (row["checksum"], row["applied_at"]) for row in rows}
