"""The files in deploy/: valid by the schemas of their readers, in step with the settings of the server."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kcache_grpc.server.config import _READERS, LIMIT_VARIABLES, ServerConfig
from tests.repository.sources import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.stem != "kustomization")
KNOWN = {f"KCACHE_{name.upper()}" for name in _READERS} | set(LIMIT_VARIABLES) | {"KCACHE_SERVER_ROLE"}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def compose() -> dict[str, Any]:
    (document,) = documents(DEPLOY / "compose.yaml")
    return document


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in (*value, *value.values()) for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_what_kubernetes_reads(path):
    manifests = documents(path)
    assert manifests
    for document in manifests:
        kubernetes_validate.validate(document, "1.33", strict=True)


def test_the_kustomization_names_every_manifest():
    (document,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert sorted(document["resources"]) == [path.name for path in MANIFESTS]


@pytest.mark.parametrize("path", [DEPLOY / "compose.yaml", *MANIFESTS], ids=lambda path: path.stem)
def test_every_variable_is_one_that_the_server_reads(path):
    named = {
        name for text in map(str, strings(documents(path))) for name in re.findall(r"\bKCACHE_\w+", text)
    }
    assert named <= KNOWN
    assert {name.removeprefix("KCACHE_").lower() for name in KNOWN} >= {
        field.name for field in fields(ServerConfig)
    } - {"limits", "worker", "heartbeat", "default_key", "socket_optional"}


def test_selectors_find_the_pods():
    by_name = {
        (document["kind"], document["metadata"]["name"]): document
        for path in MANIFESTS
        for document in documents(path)
    }
    pods = by_name["Deployment", "kcache"]["spec"]["template"]
    labels = pods["metadata"]["labels"].items()
    assert by_name["Service", "kcache"]["spec"]["selector"].items() <= labels
    assert by_name["PodDisruptionBudget", "kcache"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert by_name["NetworkPolicy", "kcache"]["spec"]["podSelector"]["matchLabels"].items() <= labels
    names = {port["name"] for port in pods["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in by_name["Service", "kcache"]["spec"]["ports"]} <= names
    assert "KCACHE_GRACE" in by_name["ConfigMap", "kcache"]["data"]
    grace = int(by_name["ConfigMap", "kcache"]["data"]["KCACHE_GRACE"])
    assert pods["spec"]["terminationGracePeriodSeconds"] > grace


def test_services_wait_for_services_that_exist_and_mount_files_that_exist():
    services = compose()["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        assert "image" in service
        assert ":" in service["image"]
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in compose()["volumes"]


def test_balancer_and_prometheus_know_the_replicas():
    services = compose()["services"]
    replicas = {name for name in services if re.fullmatch(r"kcache-\d", name)}
    assert len(replicas) == 3
    upstream = re.findall(r"server (kcache-\d):7420", (DEPLOY / "nginx.conf").read_text())
    assert set(upstream) == replicas
    (prometheus,) = documents(DEPLOY / "prometheus.yaml")
    targets = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert {target.partition(":")[0] for target in targets} == replicas
    assert all((DEPLOY / name).is_file() for name in prometheus["rule_files"])


def test_passwords_are_asked_for_and_never_given():
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    passwords = dict(
        line.split("=", 1)
        for line in (DEPLOY / "example.env").read_text().splitlines()
        if not line.startswith("#")
    )
    assert passwords == dict.fromkeys(asked, "")


def test_alerts_name_metrics_that_exist():
    from kcache_grpc.server.metrics import _COUNTERS, _GAUGES

    exposed = {f"kcache_{name}_total" for name in _COUNTERS} | {f"kcache_{name}" for name in _GAUGES}
    exposed |= {"kcache_rpc_seconds_count", "kcache_rpc_seconds_bucket", "kcache_rpc_seconds_sum"}
    (alerts,) = documents(DEPLOY / "alerts.yaml")
    expressions = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    named = {name for text in expressions for name in re.findall(r"kcache_\w+", text)}
    assert named
    assert named <= exposed
