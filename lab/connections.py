"""Loopback connections that stay open, and a network namespace for them alone."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_CLONE_NEWNET = 0x40000000


@contextmanager
def own_network() -> Iterator[None]:
    """Until the end, the calling thread and what it starts live in a fresh network namespace with a loopback.

    Needs root. The namespace has no name: it goes with the last of its processes.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            if libc.setns(before, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot go back to the network namespace")
    finally:
        os.close(before)


@contextmanager
def connections(count: int) -> Iterator[list[socket.socket]]:
    """`count` established connections over loopback: 2 x count + 1 sockets; the clients' ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 256
    if wanted > hard:
        raise OSError(f"{count} connections need {wanted} open files and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), hard))
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(socket.create_connection(listener.getsockname())))
            stack.enter_context(listener.accept()[0])
        yield clients
