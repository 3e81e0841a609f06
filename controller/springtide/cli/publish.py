"""springtide bundle and springtide validate"""

from __future__ import annotations

import json
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    read_fleet,
    read_policy,
    round_option,
    store_options,
)
from springtide.cli.output import print_json, print_table
from springtide.decide import decisions
from springtide.errors import InputError, Problem
from springtide.publish import bundle as bundles
from springtide.publish.sign import sign, signature_problem
from springtide.publish.validate import Context, problems


@click.command()
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for EDGE.json files."
)
@click.option(
    "--sign-key",
    envvar="SPRINGTIDE_SIGN_KEY",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="SSH key that signs each bundle into EDGE.json.sig.",
)
@round_option
@json_option
@fleet_option
@policy_option
@store_options
def bundle(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    round_text: str | None,
    out: Path,
    sign_key: Path | None,
    as_json: bool,
) -> None:
    """Render, validate and sign one bundle for each edge, and write all or none.

    Edges without routes get an empty bundle, which is how they lose the routes that they had.

    \b
    Examples:
      springtide bundle --out /var/lib/springtide/bundles --sign-key /etc/springtide/publisher
      springtide bundle --round 2026-01-02T03:05:00Z --out /tmp/bundles
    """
    fleet = read_fleet(fleet_path)
    policy = read_policy(policy_path)
    now = instants.now()
    newest = instants.latest_round(now, policy.round.interval_s)
    asked = closed_round(round_text, policy)
    with store.open() as opened:
        moment = asked or decisions.latest_decided(opened, newest)
        decided = [] if moment is None else decisions.read_round(opened, moment)
    if moment is None or not decided:
        what = "no round" if moment is None else f"round {instants.show(moment)}"
        message = f"{what} has decisions" if moment is None else f"{what} has no decisions"
        raise InputError([Problem("--round", "round", message, "run `springtide decide initcwnd` first")])
    rendered = bundles.render(fleet, policy, moment, decided, now)
    context = Context(fleet, policy, now)
    found = [
        problem
        for edge, content in rendered.documents.items()
        for problem in problems(f"{edge}.json", content, context)
    ]
    if found:
        raise InputError(found)
    signatures = {} if sign_key is None else sign(rendered.documents, sign_key)
    paths = bundles.write(out, rendered.documents, signatures)
    if sign_key is None:
        click.echo("unsigned: edges refuse these bundles; sign with --sign-key", err=True)
    documents = [json.loads(rendered.documents[path.stem]) for path in paths]
    left_out = [f"{d.src_pop} to {d.dst_pop} (IPv{d.ip_version})" for d in rendered.left_out]
    expires = instants.show(moment + policy.bundle.ttl_s)
    if as_json:
        listed = [
            {"edge": d["edge"], "pop": d["pop"], "file": str(p), "routes": len(d["routes"]), "digest": d["digest"]}
            for p, d in zip(paths, documents, strict=True)
        ]
        head = {"round": instants.show(moment), "policy_version": policy.version, "expires_at": expires}
        print_json({**head, "signed": sign_key is not None, "bundles": listed, "left_out": left_out})
        return
    table = [(d["edge"], d["pop"], len(d["routes"]), str(p)) for p, d in zip(paths, documents, strict=True)]
    print_table(["edge", "pop", "routes", "file"], table, title=f"Round {instants.show(moment)}, until {expires}")
    for pair in left_out:
        click.echo(f"left out: {pair}: its last evidence is too old to be promised until {expires}")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE...")
@click.option("--edge", help="Whose bundles these must be.")
@click.option(
    "--allowed-signers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check BUNDLE.sig too, against the keys in this file (the edges' /etc/springtide/allowed_signers).",
)
@json_option
@fleet_option
@policy_option
def validate(
    files: tuple[Path, ...],
    edge: str | None,
    allowed_signers: Path | None,
    fleet_path: Path,
    policy_path: Path,
    as_json: bool,
) -> None:
    """Check bundles against the fleet and the policy, on request their signatures; report every problem.

    \b
    Examples:
      springtide validate bundles/*.json
      springtide validate ams-1.json --edge ams-1
      springtide validate bundles/*.json --allowed-signers /etc/springtide/allowed_signers
    """
    context = Context(read_fleet(fleet_path), read_policy(policy_path), instants.now(), edge)
    found: list[Problem] = []
    for path in files:
        try:
            with path.open("rb") as file:
                content = file.read(context.policy.bundle.max_bytes + 1)
        except OSError as error:
            found.append(Problem(str(path), "file", f"cannot be read: {error.strerror}", "give a readable bundle"))
            continue
        found += problems(str(path), content, context)
        if allowed_signers is not None:
            found += _signature_problems(path, content, allowed_signers)
    if as_json:
        print_json({"files": len(files), "valid": not found, "problems": [vars(problem) for problem in found]})
    elif not found:
        click.echo(f"{len(files)} {'bundle is' if len(files) == 1 else 'bundles are'} valid")
    if found:
        raise InputError(found)


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
