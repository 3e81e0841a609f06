"""A real Apache Kafka broker (KRaft, one node, loopback only) for tests, benchmarks and `make kafka`."""

from testkit.kafka.broker import Broker, BrokerError, jars
from testkit.kafka.topic import Message, behind, read_topic, rows_in

__all__ = ["Broker", "BrokerError", "Message", "behind", "jars", "read_topic", "rows_in"]
