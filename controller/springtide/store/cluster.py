"""The schema for a cluster, from the same files: replicated tables, sharded where one node is not enough.

Not a parser: migrations keep to the few forms below (a test holds them to it), and what is none of them is refused.
Queries stay as they are: a sharded table's name is its Distributed face, behind it lies `NAME_local` on every shard.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from springtide.errors import InputError, Problem

# By socket: all samples of a connection lie on one shard. Redeliveries meet their first copy there, so that `final`
# sees them once; differences of a socket's counters need no other shard; and a busy host is spread over all of them.
SAMPLES_KEY = "cityHash64(host, boot_id, netns, cookie)"

# Every other table is whole on every node: the dictionary's source and the round tables are small and are joined with
# everything, and what is truncated or deleted from cannot lie behind a Distributed table.
SHARD_KEYS = {"tcp_samples": SAMPLES_KEY, "http_requests": "cityHash64(host, request_id)"}

KINDS = "table|materialized view|view|dictionary"
CREATE = re.compile(rf"create (?P<kind>{KINDS}) if not exists (?P<name>\w+)")
ALTER = re.compile(
    r"alter table (?P<name>\w+)\s+(?P<what>modify ttl|modify setting|(?:add|modify) (?:column|index|projection) if)"
)
DROP = re.compile(rf"drop (?:{KINDS}) if exists (?P<name>\w+)$")
MERGE_TREE = re.compile(r"^engine = (?P<engine>\w*MergeTree)(?:\((?P<arguments>[^()]*)\))?$", re.MULTILINE)
OTHER_ENGINE = re.compile(r"^engine = (?:Kafka|Memory|Null)\b", re.MULTILINE)
ANY_MERGE_TREE = re.compile(r"\bengine\s*=\s*\w*MergeTree", re.IGNORECASE)


def check_name(cluster: str) -> None:
    """Raises InputError unless `cluster` can stand in a statement as it is."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", cluster):
        fix = "use letters, digits, '_' and '-'"
        raise InputError([Problem("--cluster", "name", f"{cluster!r} is no name of a cluster", fix)])


def render(statements: Sequence[str], cluster: str, where: str) -> list[str]:
    """The statements of the migration `where` for `cluster`; raises InputError for a form that is not known here."""
    check_name(cluster)
    return [rendered for statement in statements for rendered in _render(statement, cluster, where)]


def _render(statement: str, cluster: str, where: str) -> list[str]:
    if match := CREATE.match(statement):
        if match["kind"] == "table":
            return _table(statement, match, cluster, where)
        return [_on_cluster(statement, match.end(), cluster)]
    if match := ALTER.match(statement):
        name = match["name"]
        whole = _on_cluster(statement, match.end("name"), cluster)
        if name not in SHARD_KEYS:
            return [whole]
        local = _renamed(statement, match, cluster)
        # The face has columns, and neither TTL nor indices.
        return [local, whole] if "column" in match["what"] else [local]
    if match := DROP.match(statement):
        whole = _on_cluster(statement, match.end(), cluster)
        return [whole, _renamed(statement, match, cluster)] if match["name"] in SHARD_KEYS else [whole]
    raise _refused(where, f"{statement.splitlines()[0]!r} is of no form that clusters know")


def _table(statement: str, match: re.Match[str], cluster: str, where: str) -> list[str]:
    name = match["name"]
    engines = list(MERGE_TREE.finditer(statement))
    if len(engines) > 1 or len(engines) != len(ANY_MERGE_TREE.findall(statement)):
        raise _refused(where, f"table {name} needs its engine alone on one line")
    if not engines:
        if OTHER_ENGINE.search(statement) is None:
            raise _refused(where, f"table {name} has an engine that clusters do not know")
        return [_on_cluster(statement, match.end(), cluster)]
    [engine] = engines
    sharded = name in SHARD_KEYS
    keeper = "'/clickhouse/tables/{shard}/{database}/%s', '{replica}'" if sharded else (
        "'/clickhouse/tables/all/{database}/%s', '{shard}-{replica}'"
    )  # fmt: skip
    arguments = f"{keeper % name}, {engine['arguments']}" if engine["arguments"] else keeper % name
    replicated = f"engine = Replicated{engine['engine']}({arguments})"
    text = statement[: engine.start()] + replicated + statement[engine.end() :]
    if not sharded:
        return [_on_cluster(text, match.end(), cluster)]
    face = (
        f"create table if not exists {name} on cluster '{cluster}' as {name}_local\n"
        f"engine = Distributed('{cluster}', currentDatabase(), '{name}_local', {SHARD_KEYS[name]})"
    )
    return [_renamed(text, match, cluster), face]


def _on_cluster(statement: str, position: int, cluster: str) -> str:
    return f"{statement[:position]} on cluster '{cluster}'{statement[position:]}"


def _renamed(statement: str, match: re.Match[str], cluster: str) -> str:
    end = match.end("name")
    return f"{statement[:end]}_local on cluster '{cluster}'{statement[end:]}"


def _refused(where: str, message: str) -> InputError:
    return InputError([Problem(where, "statement", message, "see the forms in store/cluster.py")])
