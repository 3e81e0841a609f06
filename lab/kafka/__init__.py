"""A real Apache Kafka broker (KRaft, one node, loopback only) for tests, benchmarks and `make kafka`."""

from lab.kafka.broker import Broker, BrokerError, jars

__all__ = ["Broker", "BrokerError", "jars"]
