"""Sends a process a signal just before its N-th step that touches the kernel's routing or a directory.

    python testkit/steps.py STEP DIRECTORY ONLY SIGNAL COMMAND...

A step is a system call: a datagram that is sent, a lock, a rename, a removal, a change of mode, an open below
DIRECTORY, or a change of an eBPF map, link or pin. With ONLY `write`, it is just a datagram that adds or deletes routes
or rules; with any other ONLY, just a rename to a name that ends with it. The command runs in this process, and a child
watches it by ptrace(2): so its process id and exit code are the command's own. For x86-64.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

# Without site-packages, which are not needed: they take as long to begin as most commands.
PYTHON = (sys.executable, "-I", "-S")
SEIZE, INTERRUPT, SYSCALL, GETREGS, SETREGS, DETACH = 0x4206, 0x4207, 24, 12, 13, 17  # sys/ptrace.h
SYSGOOD, TRACEEXEC, EVENT_EXEC = 1, 0x10, 4
WALL = 0x40000000
# asm/unistd_64.h: number -> name and which argument is the path that counts.
CALLS: dict[int, tuple[str, int | None]] = {
    44: ("sendto", None),
    73: ("flock", None),
    82: ("rename", 1),
    87: ("unlink", 0),
    90: ("chmod", 0),
    257: ("open", 1),
    263: ("unlink", 1),
    264: ("rename", 3),
    316: ("rename", 3),
    321: ("bpf", None),
}
# sys/user.h, user_regs_struct: 27 words; where the arguments of a system call stand.
RAX, ORIG_RAX, RIP, ARGUMENTS = 10, 15, 16, (14, 13, 12, 7)
BPF_CHANGES = (2, 3, 6, 28, 29, 34)  # linux/bpf.h: maps' values, pins, links that come, change and go
WRITES = (24, 25, 32, 33)  # linux/rtnetlink.h: routes and rules that come and go
SYSCALL_BYTES = 2  # of the instruction

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, pid: int, address: int = 0, data: object = 0) -> None:
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request:#x}")


def text_at(pid: int, address: int) -> str:
    """A path in the process's memory."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        found = b""
        # Up to the end of a page at a time: the next one may not be there.
        while b"\0" not in found:
            memory.seek(address + len(found))
            found += memory.read(4096 - (address + len(found)) % 4096)
    return found.split(b"\0")[0].decode("utf-8", "replace")


def message_type(pid: int, address: int) -> int:
    """nlmsg_type of the first message of a datagram."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address + 4)
        return int.from_bytes(memory.read(2), sys.byteorder)


def is_step(pid: int, registers: ctypes.Array[ctypes.c_ulong], directory: str, only: str) -> bool:
    """Whether the system call that is about to begin is a step."""
    name, place = CALLS.get(registers[ORIG_RAX], ("", None))
    path = text_at(pid, registers[ARGUMENTS[place]]) if place is not None else ""
    if only == "write":
        return name == "sendto" and message_type(pid, registers[ARGUMENTS[1]]) in WRITES
    if only:
        return name == "rename" and path.endswith(only)
    if name == "bpf":
        return registers[ARGUMENTS[0]] in BPF_CHANGES
    return bool(name) and (name != "open" or path.startswith(directory))


def watch(pid: int, step: int, directory: str, only: str, number: int, ready: int) -> None:
    """Until the step, or the end of the process."""
    ptrace(SEIZE, pid, 0, SYSGOOD | TRACEEXEC)
    ptrace(INTERRUPT, pid)
    os.waitpid(pid, WALL)
    os.write(ready, b"x")
    registers = (ctypes.c_ulong * 27)()
    running = entering = False
    left, pending = step, 0
    while True:
        ptrace(SYSCALL, pid, 0, pending)
        _, status = os.waitpid(pid, WALL)
        if not os.WIFSTOPPED(status):
            return
        pending = 0
        event, stop = status >> 16, os.WSTOPSIG(status)
        if event == EVENT_EXEC:
            running, entering = True, True  # the exec's own end comes next
        elif stop == signal.SIGTRAP | 0x80:
            entering = not entering
            if not (running and entering):
                continue
            ptrace(GETREGS, pid, 0, ctypes.addressof(registers))
            left -= is_step(pid, registers, directory, only)
            if left == 0:
                return interrupt(pid, registers, number)
        elif event == 0:
            pending = stop


def interrupt(pid: int, registers: ctypes.Array[ctypes.c_ulong], number: int) -> None:
    """The system call that is about to begin does not: it begins anew when the process goes on, if it does."""
    if number == signal.SIGKILL:
        os.kill(pid, number)
        return
    call = registers[ORIG_RAX]
    registers[ORIG_RAX] = 2**64 - 1
    ptrace(SETREGS, pid, 0, ctypes.addressof(registers))
    ptrace(SYSCALL, pid)
    os.waitpid(pid, WALL)
    ptrace(GETREGS, pid, 0, ctypes.addressof(registers))
    registers[RAX], registers[RIP] = call, registers[RIP] - SYSCALL_BYTES
    ptrace(SETREGS, pid, 0, ctypes.addressof(registers))
    ptrace(DETACH, pid, 0, number)


def main() -> None:
    step, directory, only, number, *command = sys.argv[1:]
    reader, writer = os.pipe()
    target = os.getpid()
    if os.fork() == 0:
        os.close(reader)
        # A reader of the command's output must not wait for this process.
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        watch(target, int(step), directory, only, int(number), writer)
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    os.execvp(command[0], command)  # noqa: S606 (as it was given)


if __name__ == "__main__":
    main()
