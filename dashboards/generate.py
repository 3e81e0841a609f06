"""Every dashboard as the JSON that Grafana reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.benefit import benefit
from dashboards.connections import connections
from dashboards.edges import edges
from dashboards.fleet import fleet
from dashboards.pairs import pairs
from dashboards.pipeline import pipeline
from dashboards.prefixes import prefixes
from dashboards.recovery import recovery
from dashboards.rollouts import rollouts
from dashboards.starts import starts

FOLDER = Path(__file__).parent / "json"
DASHBOARDS = (fleet, starts, pairs, prefixes, benefit, recovery, rollouts, pipeline, edges, connections)


def documents() -> dict[str, dict[str, Any]]:
    """Each dashboard by its file's name."""
    made = {}
    for build in DASHBOARDS:
        document: dict[str, Any] = json.loads(json.dumps(build().build(), cls=JSONEncoder))
        for number, panel in enumerate(document["panels"], 1):
            panel["id"] = number
        for variable in document["templating"]["list"]:
            # The SDK writes what only variables of type interval have.
            for name in ("auto", "auto_min", "auto_count"):
                del variable[name]
        made[f"{build.__name__}.json"] = document
    return made


def texts() -> dict[str, str]:
    return {name: json.dumps(document, indent=2, ensure_ascii=False) + "\n" for name, document in documents().items()}


def write(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made = texts()
    for old in folder.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, content in made.items():
        (folder / name).write_text(content)
