"""The schema for one server or for a cluster, from the same files: templates whose holes are filled here.

| hole               | place                                     | for a cluster                                       |
|--------------------|-------------------------------------------|-----------------------------------------------------|
| $on_cluster        | after what is created, altered or dropped | on cluster 'NAME'                                   |
| $replicated        | before an engine of the MergeTree family  | Replicated                                          |
| $replica           | after that engine                         | (its place in Keeper)                               |
| $replica_and       | before that engine's arguments, if any    | its place in Keeper, and a comma                    |
| $local             | after the name of a sharded table         | _local: one shard's rows (TTL, settings, indices)   |
| $both              | after the name of a sharded table         | the statement twice: for NAME_local and NAME        |
| $TABLE_replica     | as $replica, of the sharded TABLE         | (its place in Keeper)                               |
| $TABLE_distributed | after the statement that creates TABLE    | one more: NAME, a Distributed table over NAME_local |

For one server each is empty, so that the text (and its checksum) is the same with and without holes. `$$` is a dollar.
Queries have none: a sharded table's name is its Distributed table, whose rows are in `NAME_local` on every shard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template

from springtide.errors import InputError, Problem

# By socket: all samples of a connection are on one shard. Redeliveries are on the shard of their first copy, so that
# `final` returns them once; differences of a socket's counters need no other shard; a busy host is spread over all.
SAMPLES_KEY = "cityHash64(host, boot_id, netns, cookie)"

# Every other table is complete on every node: the dictionary's source and the round tables are small and are joined
# with everything, and a table that is truncated or deleted from cannot be behind a Distributed table.
SHARD_KEYS = {"tcp_samples": SAMPLES_KEY, "http_requests": "cityHash64(host, request_id)"}

# {database}, {table}, {shard} and {replica} are macros, which each server fills in when it creates the table.
_IN_KEEPER = "'/clickhouse/tables/"
_WHOLE = "'/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}'"
_DISTRIBUTED = """
create table if not exists $name on cluster '$cluster' as ${name}_local
engine = Distributed('$cluster', currentDatabase(), '${name}_local', $key);"""


def check_name(cluster: str) -> None:
    """Raises InputError unless `cluster` can be used in a statement without escaping."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", cluster):
        fix = "use letters, digits, '_' and '-'"
        raise InputError([Problem("--cluster", "name", f"{cluster!r} is not a valid name of a cluster", fix)])


def check_server(url: str) -> None:
    """Raises InputError for a store that has no clusters."""
    if not url.startswith("clickhouse:"):
        fix = "use clickhouse://..., or leave --cluster (SPRINGTIDE_CLUSTER) out; migrate --dry-run shows the SQL"
        raise InputError([Problem("--cluster", "store", "an embedded store has no clusters", fix)])


def holes(cluster: str | None) -> dict[str, str]:
    """The value of each hole for `cluster`, or for one server; all but $both, which has two values."""
    filled = {
        "on_cluster": f" on cluster '{cluster}'",
        "replicated": "Replicated",
        "replica": f"({_WHOLE})",
        "replica_and": f"{_WHOLE}, ",
        "local": "_local",
    }
    for name, key in SHARD_KEYS.items():
        # Not {table}, which would be NAME_local: the path must not change in existing clusters.
        filled[f"{name}_replica"] = f"('/clickhouse/tables/{{shard}}/{{database}}/{name}', '{{replica}}')"
        filled[f"{name}_distributed"] = Template(_DISTRIBUTED).substitute(name=name, cluster=cluster, key=key)
    return filled if cluster else dict.fromkeys(filled, "")


def plain(template: str, where: str, values: Mapping[str, str] | None = None) -> str:
    """The template `where` for one server, with `values` in the holes of its own. Raises InputError for a hole that is
    not known."""
    return _fill(template, {**holes(None), "both": "", **(values or {})}, where)


def render(template: str, cluster: str | None, where: str, values: Mapping[str, str] | None = None) -> list[str]:
    """The statements of the template `where` for `cluster` or for one server, with `values` in the holes of its own.
    Raises InputError for a hole that is not known, and for a statement that lacks one which a cluster needs."""
    filled = {**holes(cluster), **(values or {})}
    shards, whole = (statements_of(_fill(template, {**filled, "both": both}, where)) for both in (filled["local"], ""))
    rendered = [statement for pair in zip(shards, whole, strict=True) for statement in dict.fromkeys(pair)]
    if cluster:
        check_name(cluster)
        for before, statement in zip(["", *rendered], rendered, strict=False):
            _refuse_what_lacks_a_hole(before, statement, filled["on_cluster"], where)
    return rendered


def statements_of(sql: str) -> list[str]:
    """A statement ends with a semicolon at the end of a line; comments may be anywhere."""
    lines = [line.partition("--")[0].rstrip() for line in sql.split("\n")]
    return [found.strip() for found in "\n".join([*lines, ""]).split(";\n") if found.strip()]


def _fill(template: str, values: Mapping[str, str], where: str) -> str:
    try:
        return Template(template).substitute(values)
    except KeyError as error:
        what, fix = f"${error.args[0]} is not a known hole", f"known are {', '.join(f'${name}' for name in values)}"
    except ValueError as error:
        what, fix = f"a dollar without a name: {error}", "write $$ for a dollar"
    raise InputError([Problem(where, "hole", what, fix)])


def _refuse_what_lacks_a_hole(before: str, statement: str, on_cluster: str, where: str) -> None:
    """Not a parser: a missing hole is found by the absence of the text that it would have inserted."""
    fix = ""
    if on_cluster not in statement:
        fix = "write $on_cluster after the name of what it creates, alters or drops"
    elif "MergeTree" in statement and not re.search(rf"Replicated\w*MergeTree\({_IN_KEEPER}", statement):
        fix = "write engine = ${replicated}MergeTree$replica, or ${replicated}MergeTree(${replica_and}ARGUMENTS)"
    for name in SHARD_KEYS:
        if f"{name}_local{on_cluster}" in statement and f"{_IN_KEEPER}all/" in statement:
            fix = f"write ${name}_replica: every shard has rows of its own"
        if f" {name}{on_cluster}" in statement and f" {name}_local" not in before + statement:
            fix = f"write {name}$both$on_cluster, or {name}$local$on_cluster for what a Distributed table does not have"
    if fix:
        message = f"{statement.splitlines()[0]!r} does not reach every table of a cluster"
        raise InputError([Problem(where, "statement", message, fix)])
