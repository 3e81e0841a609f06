"""A small HTTP front for ClickHouse's insert protocol; the embedded engine does the work."""

from testkit.clickhouse.front import Fault, Front, Kind

__all__ = ["Fault", "Front", "Kind"]
