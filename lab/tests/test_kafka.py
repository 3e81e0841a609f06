"""`make kafka`: a broker for people."""

from __future__ import annotations

import signal
import subprocess
import sys

from lab import host
from testkit.kafka import read_topic


def test_a_local_broker_prints_its_address_and_leaves_nothing() -> None:
    command = ["env", "--default-signal=INT", sys.executable, "-m", "testkit.kafka"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=host.REPOSITORY) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            bootstrap = words[3].rstrip(",")
            assert read_topic(bootstrap, words[6].rstrip(";")) == []
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
