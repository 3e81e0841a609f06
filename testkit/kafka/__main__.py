"""`make kafka`: a broker on loopback to play with, until Ctrl-C or SIGTERM; then nothing of it stays."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from pathlib import Path

from testkit.kafka import Broker, BrokerError


def main() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="springtide-kafka-") as directory:
        try:
            with Broker(Path(directory)) as broker:
                broker.topic("springtide.tcp_samples")
                print(
                    f"Kafka listens on {broker.bootstrap}, with the topic springtide.tcp_samples; Ctrl-C ends it",
                    flush=True,
                )
                print(f"  springtide-collector run --kafka {broker.bootstrap} --kafka-topic springtide.tcp_samples")
                print(f"  springtide tail --kafka {broker.bootstrap}")
                print(f"  springtide consume --kafka {broker.bootstrap}", flush=True)
                ended.wait()
        except BrokerError as error:
            print(f"kafka: {error}", file=sys.stderr)
            raise SystemExit(1) from error


if __name__ == "__main__":
    main()
