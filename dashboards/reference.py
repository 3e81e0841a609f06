"""docs/reference/dashboards.md, made from the dashboards and from the engine's description of their queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from springtide.store import Store

HEAD = """# Dashboards

Made from `dashboards/`
and from the types that the engine gives each query (a test holds it to them). `make dashboards` writes
the JSON in `dashboards/json` from the code. Install: point Grafana's provisioning at `dashboards/provisioning`,
or import the files;
they need the plugin grafana-clickhouse-datasource 4 and, for collectors, a Prometheus that scrapes them.

What is proved: the JSON against the types that Grafana publishes, and every query, expanded as Grafana
and its plugin do it, on
the engine over the data of a small fleet. What is not: no Grafana server could be run where Springtide is built,
so nobody has
looked at these pages in the tests. [Proofs](proofs.md) names the test for each feature.

Each dashboard marks pushes, and what was taken back, forced or paused, from the table `audit`, links to the others,
and lets you choose its datasources.
"""


def columns_of(store: Store, sql: str) -> dict[str, str]:
    """Name and type of each column that a query gives."""
    return {row["name"]: row["type"] for row in store.query(f"describe table ({sql})")}


def page(documents: Mapping[str, dict[str, Any]], types: Callable[[dict[str, Any], str], dict[str, str]]) -> str:
    """The whole page; `types` runs a dashboard's query."""
    return HEAD + "".join(_section(document, types) for document in documents.values())


def _section(document: dict[str, Any], types: Callable[[dict[str, Any], str], dict[str, str]]) -> str:
    parts = [f"\n## {document['title']}\n\n{document['description']}\n"]
    shown = [one for one in document["templating"]["list"] if one["type"] != "datasource"]
    parts.append("".join(f"\n- variable `{one['name']}` ({one['label']}): {one['description']}" for one in shown))
    parts.append("\n\n| panel | shows | from |\n|---|---|---|\n")
    for panel in document["panels"]:
        if panel["type"] != "row":
            source = "<br>".join(_source(document, target, types) for target in panel["targets"])
            parts.append(f"| {panel['title']} | {panel['description']} | {source} |\n")
    return "".join(parts)


def _source(
    document: dict[str, Any], target: dict[str, Any], types: Callable[[dict[str, Any], str], dict[str, str]]
) -> str:
    if "expr" in target:
        return f"`{target['expr']}`"
    found = types(document, target["rawSql"])
    return ", ".join(f"`{name}` {kind}" for name, kind in found.items())
