"""Files that Grafana is given to begin with: the datasources of the dashboards, and no password in any."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dashboards.generate import documents
from dashboards.query import CLICKHOUSE, PROMETHEUS

FOLDER = Path(__file__).parents[1] / "provisioning"


def test_there_is_a_datasource_for_each_kind_that_dashboards_choose_from() -> None:
    given = yaml.safe_load((FOLDER / "datasources/springtide.yaml").read_text())["datasources"]
    assert [one["type"] for one in given] == [CLICKHOUSE.type_val, PROMETHEUS.type_val]
    chosen = {
        variable["query"]
        for document in documents().values()
        for variable in document["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert chosen == {one["type"] for one in given}


def test_passwords_come_from_the_environment() -> None:
    text = (FOLDER / "datasources/springtide.yaml").read_text()
    given = yaml.safe_load(text)["datasources"]
    assert given[0]["secureJsonData"] == {"password": "$SPRINGTIDE_CLICKHOUSE_PASSWORD"}
    assert not re.search(r"password: [^$\s]", text)
