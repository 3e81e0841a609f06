"""Every `springtide ...` in the documentation is a command that exists, with options that it takes.

In blocks of code each must be whole; in running text it may be the beginning of one.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from springtide.cli import cli

ROOT = Path(__file__).resolve().parents[1]
LISTED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, check=True
)
PAGES = sorted(LISTED.stdout.decode().split())
FENCED = re.compile(r"^( *)```(\w*)[^`\n]*\n(.*?)^ *```", re.M | re.S)
INLINE = re.compile(r"`(springtide [^`]+)`")
# A law that a page adds: tests/test_add_a_law.py runs its commands.
ADDED = "busiest"
ENDS = set(";|&()<>")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `springtide` in lines of shell, without redirections and what follows in a pipe."""
    without_comments = re.sub(r"(^|\s)#.*$", r"\1", text.replace("\\\n", " "), flags=re.M)
    lexer = shlex.shlex(without_comments, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    # Ends of lines end commands.
    lexer.whitespace = " \t"
    words: list[str] = []
    for token in [*lexer, "\n"]:
        for word in re.split(r"(\n)", token) if "\n" in token else [token]:
            if word == "\n" or set(word) <= ENDS:
                yield from _own(words)
                words = []
            elif word:
                words.append(word)


def _own(words: list[str]) -> Iterator[list[str]]:
    # The variable asks click for a shell's script, whatever the command.
    if words and words[0].startswith("_SPRINGTIDE_COMPLETE="):
        return
    while words and re.fullmatch(r"\$|sudo|time|[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words and words[0] == "springtide":
        yield words[1:]


def fault(words: list[str], whole: bool) -> str | None:
    """Why the command line would refuse these words, None when it takes them. No file is looked at."""
    command: click.Command = cli
    context = click.Context(cli, info_name="springtide")
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return "no command" if whole and not {"--help", "--version"} & {*words} else None
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    try:
        values, left, _ = command.make_parser(context).parse_args([*words])
    except click.BadOptionUsage as error:
        # In running text, an option may be named without its value.
        return error.format_message() if whole or words[-1:] != [error.option_name] else None
    except click.UsageError as error:
        return error.format_message()
    if left:
        return f"too many arguments: {left}"
    if not whole or "--help" in words:
        return None
    wanted = [str(param.name) for param in command.params if param.required and not param.envvar]
    missing = [name for name in wanted if not isinstance(values.get(name), str | list | tuple) or not values[name]]
    return f"lacks {missing}" if missing else None


def found_in(page: str) -> Iterator[tuple[list[str], bool]]:
    text = (ROOT / page).read_text()
    for _, language, block in FENCED.findall(text):
        if language in ("sh", "console", "bash", ""):
            lines = commands(re.sub(r"^ *\$ ", "", block, flags=re.M))
            yield from ((words, True) for words in lines if ADDED not in words)
    for words in INLINE.findall(FENCED.sub("", text)):
        yield [word for word in shlex.split(words)[1:] if not word.startswith("[")], False


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_documentation_exist(page: str) -> None:
    wrong = {" ".join(words): why for words, whole in found_in(page) if (why := fault(words, whole)) is not None}
    assert not wrong, page


def test_commands_are_found_and_faults_are_seen() -> None:
    """The test itself can fail."""
    assert sum(1 for page in PAGES for _ in found_in(page)) > 150
    script = 'A=1 springtide status --json | jq .  # it\'s\nls; springtide sql "a; b" > x &&\n'
    script += "  springtide check \\\n --json\n"
    assert list(commands(script)) == [["status", "--json"], ["sql", "a; b"], ["check", "--json"]]
    assert fault(["status", "--josn"], whole=False) is not None
    assert fault(["stauts"], whole=False) == "no command stauts"
    assert fault(["decide"], whole=True) == "no command"
    assert fault(["decide"], whole=False) is None
    assert fault(["publish", "--sign-key"], whole=True) is not None
    assert fault(["publish", "--sign-key"], whole=False) is None
    assert fault(["explain", "ams"], whole=True) == "lacks ['destination']"
    assert fault(["explain", "ams", "sin", "fra"], whole=True) is not None
