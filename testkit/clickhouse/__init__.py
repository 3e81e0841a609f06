"""A small HTTP front that speaks ClickHouse's insert protocol and lets the embedded engine do the work."""

from testkit.clickhouse.front import Fault, Front, Kind

__all__ = ["Fault", "Front", "Kind"]
