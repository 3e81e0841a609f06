"""The reference's page about the dashboards, made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = """# Dashboards

`make dashboards` writes the JSON in `dashboards/json` from the code in `dashboards/`. To install them, point Grafana's
provisioning at `dashboards/provisioning`, or import the files. They need the plugin grafana-clickhouse-datasource 4
and, for collectors, a Prometheus that scrapes them.

Tests check the JSON against the types that Grafana publishes. They run every query, expanded as Grafana and its plugin
do it, on the engine over the data of a small fleet. No Grafana server could be run where Springtide is built, so no
test has looked at these pages there. `python -m dashboards draw OUT` draws each over the store, with its own units and
thresholds, for places without Grafana. [Pictures](../how-to/read-the-dashboards.md) show each over hours of a simulated
fleet. [Proofs](proofs.md) names the test of each feature.

Each dashboard marks pushes, and what was taken back, forced or paused, from the table `audit`. It links to the others,
and lets you choose its datasources.
"""


def page(documents: Mapping[str, dict[str, Any]]) -> str:
    """The whole page."""
    return HEAD + "".join(_section(document) for document in documents.values())


def _section(document: dict[str, Any]) -> str:
    parts = [f"\n## {document['title']}\n\n{document['description']}\n"]
    shown = [one for one in document["templating"]["list"] if one["type"] != "datasource"]
    parts.append("".join(f"\n- variable `{one['name']}` ({one['label']}): {one['description']}" for one in shown))
    parts.append("\n\n| panel | shows |\n|---|---|\n")
    parts += [
        f"| {panel['title']} | {panel['description']} |\n" for panel in document["panels"] if panel["type"] != "row"
    ]
    return "".join(parts)
