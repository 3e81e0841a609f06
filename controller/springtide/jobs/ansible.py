"""Run a playbook as an operator would: its output is this process's, and it never outlives this process."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from springtide.errors import SpringtideError
from springtide.jobs.site import Site
from springtide.shipped import named

# Time that a play may take after SIGTERM to end its children and release the lock.
STOP_S = 30


def command(site: Site, play: str, extra: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """By SPRINGTIDE_ANSIBLE (a command, `ansible-playbook`) and SPRINGTIDE_ANSIBLE_DIR (this installation's plays)."""
    words = shlex.split(environment.get("SPRINGTIDE_ANSIBLE", "ansible-playbook"))
    given = {
        "springtide_publish_dir": str(site.publish_dir),
        "springtide_policy": str(site.policy_path.absolute()),
        **extra,
    }
    words += ["-i", str(site.fleet_path), "-e", variables(given)]
    return [*words, str(directory(environment) / "playbooks" / play)]


def variables(given: Mapping[str, str]) -> str:
    """The argument of `-e` for these values, unchanged: a reason may quote an edge's answer.

    As NAME=VALUE a text could go on with another NAME=VALUE, and without `!unsafe` Ansible runs a template in it here.
    """
    texts = {name: "".join(each if each.isprintable() else " " for each in text) for name, text in given.items()}
    pairs = ", ".join(f"{name}: !unsafe {json.dumps(text, ensure_ascii=False)}" for name, text in texts.items())
    return f"{{{pairs}}}"


def directory(environment: Mapping[str, str] = os.environ) -> Path:
    given = environment.get("SPRINGTIDE_ANSIBLE_DIR")
    return Path(given) if given else named("ansible")


def play(site: Site, name: str, extra: Mapping[str, str], print_line: Callable[[str], None] = print) -> None:
    """Run it to its end. Raises SpringtideError with Ansible's own last reason where it fails."""
    words = command(site, name, extra)
    environment = {"ANSIBLE_CONFIG": str(directory() / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **os.environ}
    # Whatever configuration is chosen: hosts' facts must not become variables of the play.
    environment["ANSIBLE_INJECT_FACT_VARS"] = "False"
    try:
        running = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise SpringtideError(f"{words[0]}: cannot be started: {error.strerror}; set SPRINGTIDE_ANSIBLE") from error
    reasons: list[str] = []
    try:
        assert running.stdout is not None  # noqa: S101 (it is a pipe)
        for line in running.stdout:
            print_line(line.rstrip())
            reasons += re.findall(r'"msg": "(.*?)"[,}]', line) + re.findall(r"^(?:ERROR!|\[ERROR\]:) (.*)", line)
        code = running.wait()
    except BaseException:
        _stop(running)
        raise
    if code:
        last = reasons[-1].strip() if reasons else f"exit code {code}"
        raise SpringtideError(f"{name}: {last}; see the lines above")


def _stop(running: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(running.pid, number)
            running.wait(STOP_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return
