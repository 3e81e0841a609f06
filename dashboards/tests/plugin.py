"""What Grafana and its ClickHouse plugin make of a query before the server sees it: variables, then macros."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


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
            raise AssertionError(f"{match[0]}: a format that is not known here")
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
    """Raises AssertionError where something is left that no server would understand."""
    ready = macros(variables(sql, values), view)
    assert "$" not in ready, f"not expanded: {ready}"
    return ready
