"""Ansible's own ssh, for hosts that may be hostile: their answers are reduced before Ansible reads them.

Ansible obeys some keys of a result (facts, hosts to add), ends the whole play where others are not as it expects, and
prints text as it is. So every play here that works on hosts sets `connection: springtide.fleet.ssh`, and every module's
and command's answer passes this one place. It is not for fetching files: what is read is made printable.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path

from ansible.errors import AnsibleError

# Its options are Ansible's, read from here.
from ansible.plugins.connection.ssh import DOCUMENTATION as DOCUMENTATION
from ansible.plugins.connection.ssh import Connection as AnsibleConnection

from ..module_utils.springtide_answer import known, printable

# Bytes for this task's process: a host that never stops talking ends its own task, and not what else the publisher
# does.
MAX_MEMORY = 1024 * 1024 * 1024


def end_children() -> None:
    """Ends what this task's process has started: ssh. The shared connection itself is nobody's child."""
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)


class Connection(AnsibleConnection):  # type: ignore[misc]  # Ansible brings no types
    def _bare_run(
        self, cmd: list[bytes], in_data: bytes | None, sudoable: bool = True, checkrc: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Every answer of a host passes here: of modules, commands and transfers, and errors of the connection."""
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, hard))
        try:
            code, out, errors = super()._bare_run(cmd, in_data, sudoable=sudoable, checkrc=checkrc)
            reduced = known(out.decode("utf-8", "replace")), printable(errors.decode("utf-8", "replace"))
        except AnsibleError as error:
            # It quotes the host's answer.
            raise type(error)(printable(str(error))) from None
        except MemoryError:
            end_children()
            raise AnsibleError("the host's answer is too long to be read; inspect what runs there") from None
        except BaseException:
            # The time limit: ssh would go on waiting for the host.
            end_children()
            raise
        return code, reduced[0].encode(), reduced[1].encode()
