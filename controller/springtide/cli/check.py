"""springtide check"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import fleet_option, json_option, policy_option, read_fleet
from springtide.cli.output import print_json
from springtide.document import load
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet, destination_problem
from springtide.jobs.site import examine_policy
from springtide.policy import ADVICE_ONLY, Policy, default_yaml
from springtide.policy.names import unknown


@click.command()
@click.option("--defaults", is_flag=True, help="Print the default policy.yaml with comments, and check nothing.")
@json_option
@fleet_option
@policy_option
def check(fleet_path: Path, policy_path: Path, defaults: bool, as_json: bool) -> None:
    """Check fleet.yaml and policy.yaml, each by itself and against the other.

    What is valid but decides nothing between PoPs, as a fleet of one, is noted.

    \b
    Examples:
      springtide check --fleet fleet.yaml --policy policy.yaml
      springtide check --defaults > policy.yaml
    """
    if defaults:
        click.echo(default_yaml(), nl=False)
        return
    problems: list[Problem | str] = []
    fleet: Fleet | None = None
    policy: Policy | None = None
    try:
        fleet = read_fleet(fleet_path)
    except InputError as error:
        problems += error.problems
    try:
        policy, found = examine_policy(policy_path)
        problems += found
    except InputError as error:
        problems += error.problems
    if fleet is not None:
        problems += [Problem(str(fleet_path), *finding) for finding in _no_destinations(fleet)]
    if fleet is not None and policy is not None:
        problems += [Problem(str(fleet_path), *finding) for finding in _too_wide(fleet, policy)]
        problems += _unknown(fleet, policy, policy_path)
        problems += [Problem(str(fleet_path), *finding) for finding in _opt_outs(fleet, policy, instants.now())]
    if problems or fleet is None or policy is None:
        raise InputError(problems)
    prefixes = sum(len(pop.prefixes) for pop in fleet.pops.values())
    counts = {"pops": len(fleet.pops), "prefixes": prefixes, "edges": len(fleet.edges())}
    notes = _notes(fleet, policy, instants.now())
    if as_json:
        print_json({**counts, "policy_version": policy.version, "mode": policy.mode, "notes": notes})
    else:
        click.echo(f"{fleet_path}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
        click.echo(f"{policy_path}: policy {policy.version}")
        for note in notes:
            click.echo(f"note: {note}")


def _notes(fleet: Fleet, policy: Policy, now_unix_s: int) -> list[str]:
    """Notes on what is valid, and may still not be what is expected."""
    found = []
    if len(fleet.pops) < 2:
        name = next(iter(fleet.pops))
        found.append(
            f"{name} is the only PoP: there is nothing to decide between PoPs; its clients are decided by client "
            "prefix, and what faster starts towards them would gain says `springtide advise`"
        )
    for index, override in enumerate(policy.overrides):
        for at, edge in enumerate(override.edges or ()):
            if policy.enforce_of(edge, override.src, now_unix_s).by == "bpf":
                what = f"{edge} enforces by bpf, where the windows of single edges set nothing"
                found.append(f"overrides[{index}].edges[{at}]: {what}; name the pair without edges")
    if policy.advises:
        found.append(ADVICE_ONLY)
    return found


def _no_destinations(fleet: Fleet) -> list[tuple[str, str, str]]:
    """Prefixes that others' bundles leave out, as edges would refuse those whole."""
    return [
        (f"pops.{name}.prefixes[{index}]", f"{prefix} {problem}", "name prefixes that others reach the PoP by")
        for name, pop in fleet.pops.items()
        for index, prefix in enumerate(pop.prefixes)
        if (problem := destination_problem(prefix)) is not None
    ]


def _too_wide(fleet: Fleet, policy: Policy) -> list[tuple[str, str, str]]:
    """Prefixes that edges would take, and that no bundle could carry under this policy."""
    shortest = {4: policy.bundle.min_prefix_length_ipv4, 6: policy.bundle.min_prefix_length_ipv6}
    return [
        (
            f"pops.{name}.prefixes[{index}]",
            f"{prefix} is wider than bundle.min_prefix_length_ipv{prefix.version} = {shortest[prefix.version]}",
            "split the prefix, or lower the limit",
        )
        for name, pop in fleet.pops.items()
        for index, prefix in enumerate(pop.prefixes)
        if prefix.prefixlen < shortest[prefix.version] and destination_problem(prefix) is None
    ]


def _opt_outs(fleet: Fleet, policy: Policy, now_unix_s: int) -> list[tuple[str, str, str]]:
    """Tenants that some edge could not leave alone."""
    names = [name for name, tenant in fleet.tenants.items() if tenant.start == "off"]
    ways = {edge: policy.enforce_of(edge, pop, now_unix_s) for edge, pop in fleet.edges().items()}
    unable = [edge for edge, way in ways.items() if (way.by, way.otherwise) != ("bpf", "default")]
    if not names or not unable:
        return []
    what = f"routes know destinations only, and {len(unable)} of {len(ways)} edges enforce by them ({unable[0]})"
    fix = "set enforce.by: bpf and enforce.otherwise: default in policy.yaml, or take start: off out"
    return [(f"tenants.{name}.start", what, fix) for name in names]


def _unknown(fleet: Fleet, policy: Policy, path: Path) -> list[Problem]:
    """Names in overrides that could never apply to anything, by lines of the file."""
    found = list(unknown(fleet, policy))
    if not found:  # there may be no file either
        return []
    document = load(path)
    return [document.problem(*finding) for finding in found]
