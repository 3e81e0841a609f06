"""The Helm chart: rendered by helm itself, judged by Kubernetes' own schemas, and as closed as the units are."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource

from testkit.debian import ROOT, run

pytestmark = pytest.mark.proof
CHART = ROOT / "deploy/helm/springtide"
PAGE = ROOT / "docs/how-to/run-in-kubernetes.md"
# The oldest that the chart takes; without a cluster, helm built from source assumes an older one.
OLDEST = "--kube-version=1.25"
SCHEMAS = ROOT / "target/tools/kubernetes"
# Values, as a person gives them; each is rendered and judged.
VALUES: dict[str, dict[str, str]] = {
    "default": {},
    "edge": {"edge.enabled": "true", "collector.pop": "ams"},
    "everything": {
        "edge.enabled": "true",
        "collector.allNamespaces": "true",
        "collector.startValues": "true",
        "collector.secret": "kafka",
        "image.pullSecrets[0].name": "registry",
        "nodeSelector.role": "edge",
        "priorityClassName": "system-node-critical",
    },
}


@pytest.fixture(scope="module")
def helm() -> Path:
    run(ROOT / "tools/get-helm")
    run(ROOT / "tools/get-kubernetes-schemas")
    return ROOT / "target/tools/bin/helm"


def options(values: Mapping[str, str]) -> list[str]:
    return [f"--set={key}={value}" for key, value in values.items()]


def rendered(helm: Path, values: Mapping[str, str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects by kind and name."""
    text = run(helm, "template", "springtide", CHART, OLDEST, *options(values)).stdout
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(helm: Path, part: str, **values: str) -> dict[str, Any]:
    given = {key.replace("__", "."): value for key, value in values.items()}
    spec: dict[str, Any] = rendered(helm, given)["DaemonSet", f"springtide-{part}"]["spec"]["template"]["spec"]
    return spec


def capabilities(spec: Mapping[str, Any]) -> set[str]:
    [container] = spec["containers"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    return {f"CAP_{name}" for name in container["securityContext"]["capabilities"].get("add", [])}


def bounded(path: str) -> set[str]:
    """The capabilities that a unit or a drop-in of systemd leaves."""
    [line] = re.findall(r"^CapabilityBoundingSet=(.*)$", (ROOT / path).read_text(), re.M)
    return set(line.split())


@pytest.mark.parametrize("name", VALUES)
def test_helm_finds_nothing_wrong_and_kubernetes_takes_every_field(helm: Path, name: str) -> None:
    assert "0 chart(s) failed" in run(helm, "lint", "--strict", OLDEST, CHART, *options(VALUES[name])).stdout
    objects = rendered(helm, VALUES[name])
    assert len(objects) == (2 if name == "default" else 3)
    for version in ("1.25", "1.37"):
        shared = json.loads((SCHEMAS / version / "_definitions.json").read_text())
        for (kind, _), document in objects.items():
            file = {"ConfigMap": "configmap-v1", "DaemonSet": "daemonset-apps-v1"}[kind]
            schema = json.loads((SCHEMAS / version / f"{file}.json").read_text())
            registry = Resource.from_contents(shared) @ Registry()
            jsonschema.Draft202012Validator(schema, registry=registry).validate(document)


def test_the_schemas_would_notice_a_mistake(helm: Path) -> None:
    document = rendered(helm, {})["DaemonSet", "springtide-collector"]
    document["spec"]["template"]["spec"]["hostNetworking"] = True
    shared, schema = (
        json.loads((SCHEMAS / "1.25" / f"{name}.json").read_text()) for name in ("_definitions", "daemonset-apps-v1")
    )
    validator = jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(shared) @ Registry())
    assert "hostNetworking" in "".join(error.message for error in validator.iter_errors(document))


def test_the_collector_has_no_privilege_unless_it_is_given_one(helm: Path) -> None:
    alone = pod(helm, "collector")
    assert alone["hostNetwork"] is True
    assert "hostPID" not in alone
    assert (alone["securityContext"]["runAsUser"], alone["securityContext"]["runAsNonRoot"]) == (10001, True)
    assert capabilities(alone) == set()
    assert not [each for each in alone["volumes"] if "hostPath" in each]
    every = pod(helm, "collector", collector__allNamespaces="true")
    assert every["hostPID"] is True
    assert capabilities(every) == bounded("collector/packaging/all-namespaces.conf")
    values = pod(helm, "collector", collector__startValues="true")
    assert capabilities(values) == bounded("collector/packaging/start-values.conf")
    assert [each["hostPath"]["path"] for each in values["volumes"] if "hostPath" in each] == ["/sys/fs/bpf"]


def test_the_edge_program_has_what_its_unit_has(helm: Path) -> None:
    assert ("DaemonSet", "springtide-edge") not in rendered(helm, {})
    spec = pod(helm, "edge", edge__enabled="true")
    assert capabilities(spec) == bounded("edge/packaging/springtide-edge-watch.service")
    mounted = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    places = {each["hostPath"]["path"]: mounted[each["name"]] for each in spec["volumes"]}
    assert places == {
        "/var/lib/springtide": "/var/lib/springtide",
        "/run/springtide": "/run/springtide",
        "/sys/fs/bpf": "/sys/fs/bpf",
        "/sys/fs/cgroup": "/host/cgroup",
    }


def test_the_programs_take_what_the_chart_gives_them(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, {"edge.enabled": "true", "collector.pop": "ams"})
    known = {"NODE_NAME": "ams-1", "HOST_IP": "192.0.2.1"}

    def arguments(part: str) -> list[str]:
        [container] = objects["DaemonSet", f"springtide-{part}"]["spec"]["template"]["spec"]["containers"]
        assert {each["name"] for each in container["env"]} == set(known)
        return [re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], each) for each in container["args"]]

    (tmp_path / "collector.toml").write_text(objects["ConfigMap", "springtide-collector"]["data"]["collector.toml"])
    collector = ROOT / "target/release/springtide-collector"
    config = ("--check-config", "--config", tmp_path / "collector.toml")
    force = run(collector, *arguments("collector"), *config).stdout
    for line in (
        'host = "ams-1"',
        'pop = "ams"',
        'netns = "own"',
        'listen = "192.0.2.1:9462"',
        'brokers = "kafka:9092"',
    ):
        assert f"\n{line}\n" in force
    command, *rest = arguments("edge")
    assert command == "watch"
    # `check` takes the options of `watch`, and ends.
    check = [str(ROOT / "target/release/springtide-edge"), "check", "--json", *rest]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["command"] == "check", done.stderr


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("collector.pops=ams", "pops"),
        ("collector.port=0", "collector/port"),
        ("image.pullPolicy=Sometimes", "image/pullPolicy"),
        ("edge.cgroup=cgroup", "edge/cgroup"),
    ],
)
def test_a_value_that_is_wrong_is_named(helm: Path, value: str, named: str) -> None:
    done = subprocess.run(
        [helm, "template", CHART, OLDEST, f"--set={value}"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert named in done.stderr.replace(".", "/") or named in done.stderr


def test_the_chart_is_of_this_version_and_the_page_has_every_value() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = set(re.findall(r"^\| `([\w.]+)`", PAGE.read_text(), re.M))
    flat = {
        f"{group}.{key}" if isinstance(inner, dict) and inner else group
        for group, inner in values.items()
        for key in (inner if isinstance(inner, dict) and inner else [""])
    }
    assert named == flat
