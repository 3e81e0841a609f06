"""Groups of fresh connections, one group after another: `python -m lab.fetches` on the requesting edge.

Each line on standard input is a group, {"id", "size", "to": [[address, port], ...], "timeout_s"}: its connections open
at once, ask the senders of `lab/transfers.py` for as many bytes, and close. With `before` each has carried an object of
so many bytes, and is idle again. One line answers a group, when all have ended: {"id", "transfers": [{"to", "port",
"ms" or "error"}]}, `port` being the connection's own and `ms` from its last request to the last byte. Only the standard
library is imported.
"""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import sys
import time
from typing import Any

_SIZE = struct.Struct(">Q")


async def fetch(to: tuple[str, int], size: int, timeout_s: float, before: int = 0) -> dict[str, Any]:
    """One connection's result."""
    found: dict[str, Any] = {"to": list(to), "port": 0}
    writer = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*to, limit=1 << 20)
            found["port"] = writer.get_extra_info("sockname")[1]
            begin = 0.0
            for asked in (before, size) if before else (size,):
                begin = time.perf_counter()
                writer.write(_SIZE.pack(asked))
                left = asked
                while left > 0:
                    data = await reader.read(1 << 20)
                    if not data:
                        raise ConnectionError(f"{left} bytes are missing")
                    left -= len(data)
            found["ms"] = round((time.perf_counter() - begin) * 1000, 3)
    except (OSError, TimeoutError) as error:
        found["error"] = str(error) or f"took more than {timeout_s:g} s"
    finally:
        if writer is not None:
            writer.close()
    return found


async def group(task: dict[str, Any]) -> list[dict[str, Any]]:
    size, timeout_s, before = task["size"], task["timeout_s"], task.get("before", 0)
    fetches = [fetch((address, port), size, timeout_s, before) for address, port in task["to"]]
    return list(await asyncio.gather(*fetches))


def main() -> None:
    # A garbage collection's pause would show in the measurement.
    gc.disable()
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps({"id": task["id"], "transfers": asyncio.run(group(task))}), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
