"""Changes a query as Grafana and its ClickHouse plugin do before the server sees it: variables, then macros."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from springtide.store import Store


@dataclass(frozen=True)
class View:
    """The time range and interval of a dashboard that is looked at."""

    since: int
    until: int
    interval_s: int = 300


def variables(sql: str, values: Mapping[str, list[str]]) -> str:
    """`${name:format}` in the formats that the dashboards use; Grafana's documentation names them."""

    def one(match: re.Match[str]) -> str:
        chosen, form = values[match[1]], match[2]
        if form == "raw":
            [value] = chosen
            return value
        if form == "singlequote":
            escaped = [value.replace("'", "\\'") for value in chosen]
        elif form == "sqlstring":
            escaped = [value.replace("'", "''") for value in chosen]
        else:
            raise ValueError(f"{match[0]}: a format that is not known here")
        return ",".join(f"'{value}'" for value in escaped)

    return re.sub(r"\$\{(\w+):(\w+)\}", one, sql)


def macros(sql: str, view: View) -> str:
    """The plugin's macros in seconds, as its server part writes them."""
    since, until = f"toDateTime({view.since})", f"toDateTime({view.until})"
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 >= {since} AND \1 <= {until}", sql)
    sql = re.sub(
        r"\$__timeInterval\((\w+)\)", rf"toStartOfInterval(toDateTime(\1), INTERVAL {view.interval_s} second)", sql
    )
    return sql.replace("$__fromTime", since).replace("$__toTime", until).replace("$__interval_s", str(view.interval_s))


def expanded(sql: str, values: Mapping[str, list[str]], view: View) -> str:
    """Raises ValueError where something is left that no server would understand."""
    ready = macros(variables(sql, values), view)
    if "$" in ready:
        raise ValueError(f"not expanded: {ready}")
    return ready


def values_of(
    store: Store, document: Mapping[str, Any], view: View, typed: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Each variable when the dashboard is opened: what it lists, all chosen, or the text it begins with.

    `typed` is what stands in a text box instead.
    """
    values: dict[str, list[str]] = {}
    for variable in document["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "textbox":
            values[name] = typed.get(name, [variable["query"]])
        elif variable["type"] == "query":
            rows = store.query(expanded(variable["query"], values, view))
            # A list of nothing is one that nothing is in.
            values[name] = [str(value) for row in rows for [value] in [row.values()]] or [""]
    return values
