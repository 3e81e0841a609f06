"""A target of Grafana's ClickHouse plugin (grafana-clickhouse-datasource 4), which the SDK does not know."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef

# Datasources are variables, so that the dashboards work wherever they are imported.
CLICKHOUSE = DataSourceRef(type_val="grafana-clickhouse-datasource", uid="${clickhouse}")
PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${prometheus}")


@dataclass
class ClickhouseQuery(Dataquery, Builder["ClickhouseQuery"]):
    """SQL with the plugin's macros; `series` gives one line a text column's value, else the rows are a table."""

    sql: str
    series: bool = False
    ref_id: str = "A"

    def build(self) -> ClickhouseQuery:
        return self

    def to_json(self) -> dict[str, object]:
        return {
            "refId": self.ref_id,
            "datasource": CLICKHOUSE,
            "editorType": "sql",
            "queryType": "timeseries" if self.series else "table",
            "format": 0 if self.series else 1,
            "rawSql": self.sql,
        }
