"""A small HTTP front that speaks ClickHouse's insert protocol and lets the embedded engine do the work."""

from lab.clickhouse.front import Fault, Front, Kind

__all__ = ["Fault", "Front", "Kind"]
