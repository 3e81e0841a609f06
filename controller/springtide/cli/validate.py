"""springtide validate: may these bundles be published?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from springtide import instants
from springtide.bundles.model import Document, Documents
from springtide.bundles.receivers import narrow
from springtide.bundles.sign import signature_problem
from springtide.bundles.validate import Context, parsed_problems
from springtide.cli.options import (
    StoreOptions,
    fleet_option,
    json_option,
    need_reason,
    policy_option,
    read_fleet,
    read_policy,
    store_options,
)
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet
from springtide.jobs.publish import digest_of, forced, too_much
from springtide.laws.initcwnd import rows as decisions
from springtide.publication import journal
from springtide.publication.folder import PublishFolder


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE...")
@click.option("--edge", help="Whose bundles these must be.")
@click.option(
    "--allowed-signers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check BUNDLE.sig too, against the keys in this file (the edges' /etc/springtide/allowed_signers).",
)
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Compare them with what is current, in the publisher's folder, under the policy's caps.",
)
@click.option(
    "--receivers",
    is_flag=True,
    help="Warn of pairs whose receivers' buffers are too small for their window; needs the store.",
)
@click.option("--force", is_flag=True, help="With --against: accept what only exceeds a cap.")
@click.option("--reason", default="", metavar="TEXT", help="Why; the audit of --against keeps it.")
@json_option
@fleet_option
@policy_option
@store_options
def validate(
    store: StoreOptions,
    files: tuple[Path, ...],
    edge: str | None,
    allowed_signers: Path | None,
    against: Path | None,
    receivers: bool,
    force: bool,
    reason: str,
    fleet_path: Path,
    policy_path: Path,
    as_json: bool,
) -> None:
    """Check bundles against the fleet and the policy, on request their signatures; report every problem.

    A warning changes no exit code.

    \b
    Examples:
      springtide validate bundles/*.json
      springtide validate ams-1.json --edge ams-1
      springtide validate bundles/*.json --allowed-signers /etc/springtide/allowed_signers
      springtide validate bundles/*.json --against /var/lib/springtide/publish
      springtide validate bundles/*.json --receivers
    """
    # Long: one option per line, and what was found in two forms.
    need_reason(force, reason)
    if force and against is None:
        raise InputError([Problem("--force", "against", "is missing", "name the publisher's folder to compare with")])
    context = Context(read_fleet(fleet_path), read_policy(policy_path), instants.now(), edge)
    found: list[Problem] = []
    documents: dict[str, Document] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                content = file.read(context.policy.bundle.max_bytes + 1)
        except OSError as error:
            found.append(Problem(str(path), "file", f"cannot be read: {error.strerror}", "give a readable bundle"))
            continue
        document, wrong = parsed_problems(str(path), content, context)
        found += wrong
        if document is not None and not wrong:
            documents[document.bundle.edge] = document
        if allowed_signers is not None:
            found += _signature_problems(path, content, allowed_signers)
    over = [] if against is None else too_much(PublishFolder(against), documents, context.policy, context.fleet)
    if not force:
        found += over
    elif against is not None and over and not found:
        edges, digest = sorted(documents), digest_of(documents)
        journal.append(against, replace(forced(over, reason), edges=edges, digest=digest))
    warnings = [] if found or not receivers else _narrow(store, context.fleet, documents)
    for each in warnings:
        click.echo(f"warning: {each}", err=True)
    if as_json:
        report = {"problems": [vars(problem) for problem in found], "warnings": warnings}
        passed = [str(problem) for problem in over] if force and not found else []
        print_json({"files": len(files), "valid": not found, "forced": passed, **report})
    elif not found:
        click.echo(f"{len(files)} {'bundle is' if len(files) == 1 else 'bundles are'} valid")
    if found:
        raise InputError(found)


def _narrow(store: StoreOptions, fleet: Fleet, documents: Documents) -> list[str]:
    moments = {document.bundle.round for document in documents.values()}
    with store.open() as opened:
        decided = [each for moment in moments for each in decisions.read_round(opened, instants.parse(moment))]
    return list(narrow(documents, decided, fleet))


def _signature_problems(path: Path, content: bytes, allowed_signers: Path) -> list[Problem]:
    signed = path.with_name(f"{path.name}.sig")
    try:
        signature = signed.read_bytes()
    except FileNotFoundError:
        signature = None
    except OSError as error:
        return [Problem(str(signed), "file", f"cannot be read: {error.strerror}", "give a readable signature")]
    problem = signature_problem(str(path), content, signature, allowed_signers)
    return [] if problem is None else [problem]
