"""A real Apache Kafka broker (KRaft, one node, loopback only) for tests, benchmarks and `make kafka`."""

from testkit.kafka.broker import Broker, BrokerError, jars
from testkit.kafka.topic import Feed, Message, behind, read_topic, rows_in

__all__ = ["Broker", "BrokerError", "Feed", "Message", "behind", "jars", "read_topic", "rows_in"]
