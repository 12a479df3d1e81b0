"""What ``verify_bundle`` finds, and that it finds nothing in a good bundle."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kcache_grpc import Client
from kcache_grpc.bundle import ArtifactEntry, Entry, KernelEntry, Limits, MappingEntry, SpecEntry, read_stream
from kcache_grpc.bundle.format import MAX_RATIO
from kcache_grpc.bundle.verify import VerifyReport, verify_bundle
from kcache_grpc.model.signing import Signer, server_id
from tests.bundle.making import metadata_of, stored_entries, written
from tests.client.conftest import PROGRAM
from tests.client.fake import CONSTANT, FakeService, serving
from tests.repository.sources import ROOT

pytestmark = pytest.mark.issue(number=20, point=4)

PAGE = (ROOT / "docs" / "guide" / "bundles.md").read_text()


@pytest.fixture(scope="module")
def service() -> FakeService:
    service = FakeService()
    service.constants = (CONSTANT,)
    return service


@pytest.fixture(scope="module")
def entries(service: FakeService, tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """A mapping, a kernel for x86-64-v2 and their bytes; the spec of the fake service has no text."""
    cache = tmp_path_factory.mktemp("maker") / "cache"
    with serving(service) as server, Client(server.address, cache_dir=cache, strict=True) as client:
        client.compile(PROGRAM, target="x86-64-v2")
    return stored_entries(cache)


def verified(
    entries: list[Entry],
    service: FakeService,
    *,
    signer: Signer | None = None,
    target: str | None = None,
    trusted: set[str] | None = None,
) -> VerifyReport:
    data = written(entries, signer or service.signer, metadata_of(entries, service.signer))
    with read_stream(io.BytesIO(data)) as bundle:
        return verify_bundle(bundle, trusted=trusted, target=target)


def problems(report: VerifyReport) -> set[tuple[str, str]]:
    """Findings by name, and the kind of their entries."""
    return {(finding.name, finding.entry.partition(" ")[0]) for finding in report.findings}


#: The fake service has no text of its specs, and no bundle of its kernels is without these.
SPEC = {("missing", "kernel"), ("missing", "mapping")}


def test_a_bundle_of_a_server_is_whole_for_its_target(entries: list[Entry], service: FakeService) -> None:
    trusted = {server_id(service.signer.public_key)}
    report = verified(entries, service, trusted=trusted, target="x86-64-v2")
    assert problems(report) == SPEC
    assert report.targets == ("x86-64-v2",)
    assert report.entries["artifact"] == 2
    assert all("its spec" in finding.message for finding in report.findings)


def test_another_target_is_a_finding(entries: list[Entry], service: FakeService) -> None:
    report = verified(entries, service, target="aarch64")
    assert problems(report) == {*SPEC, ("target", "")}
    assert "it has kernels for x86-64-v2" in report.findings[-1].message


def test_an_untrusted_signer_of_the_bundle_and_of_what_it_holds(
    entries: list[Entry], service: FakeService
) -> None:
    stranger = Signer.generate()
    mine, theirs = server_id(service.signer.public_key), server_id(stranger.public_key)
    assert problems(verified(entries, service, signer=stranger, trusted={mine})) == {*SPEC, ("untrusted", "")}
    assert problems(verified(entries, service, signer=stranger, trusted={theirs})) == {
        ("untrusted", "mapping"),
        ("untrusted", "kernel"),
    }
    assert problems(verified(entries, service, signer=stranger, trusted={mine, theirs})) == SPEC


def test_missing_bytes_are_findings(entries: list[Entry], service: FakeService) -> None:
    report = verified([entry for entry in entries if not isinstance(entry, ArtifactEntry)], service)
    messages = " ".join(finding.message for finding in report.findings)
    assert problems(report) == SPEC
    assert "its so" in messages
    assert f"its constant {hashlib.sha256(CONSTANT).hexdigest()}" in messages


def test_entries_that_contradict_their_signatures_are_findings(
    entries: list[Entry], service: FakeService
) -> None:
    [mapping] = [entry for entry in entries if isinstance(entry, MappingEntry)]
    [kernel] = [entry for entry in entries if isinstance(entry, KernelEntry)]
    changes: list[tuple[Entry, tuple[str, str]]] = [
        (replace(mapping, spec_digest=b"\1" * 32), ("mapping", "mapping")),
        (replace(mapping, constants=()), ("mapping", "mapping")),
        (replace(mapping, numerics="strict"), ("mapping", "mapping")),
        (replace(kernel, ingredients=kernel.ingredients[:-1]), ("kernel", "kernel")),
        (replace(kernel, spec_digest=b"\1" * 32), ("kernel", "kernel")),
        (replace(kernel, artifacts=(replace(kernel.artifacts[0], size=1),)), ("kernel", "kernel")),
        (replace(kernel, manifest=replace(kernel.manifest, key_id=bytes(8))), ("signature", "kernel")),
        (replace(kernel, manifest=replace(kernel.manifest, payload=b"")), ("signature", "kernel")),
        (SpecEntry(bytes(32), "another text", "default", 3), ("spec", "spec")),
        (ArtifactEntry(bytes(32), b"bytes of another digest"), ("name", "artifact")),
    ]
    for changed, expected in changes:
        assert expected in problems(verified([changed], service)), changed


def test_the_page_names_the_findings_of_the_code() -> None:
    table = PAGE[PAGE.index("| finding |") :].split("\n\n")[0].splitlines()[2:]
    documented = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    sources = [
        *(ROOT / "kcache_grpc" / "bundle").glob("*.py"),
        ROOT / "kcache_grpc" / "cli" / "operate" / "bundles.py",
    ]
    text = "\n".join(path.read_text() for path in sources)
    named = set(re.findall(r'"?finding"?[=,] ?"(\w+)"', text)) | set(re.findall(r'_find\(\s*"(\w+)"', text))
    assert documented == named | {"mapping", "kernel"}


def test_the_page_states_the_limits_of_the_code() -> None:
    limits = Limits()
    table = PAGE[PAGE.index("| limit |") :].split("\n\n")[0].splitlines()[2:]
    assert [line.split("|")[2].strip() for line in table] == [
        f"{limits.max_file_bytes >> 30} GiB",
        str(limits.max_entries),
        f"{limits.max_index_bytes >> 20} MiB",
        f"{limits.max_header_bytes >> 10} KiB",
        f"{limits.max_entry_bytes >> 30} GiB",
        f"{limits.max_total_bytes >> 30} GiB",
        str(MAX_RATIO),
    ]


def test_the_command_says_the_same(
    entries: list[Entry], service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``kcache bundle verify`` exits with 1 and names the findings, of a bad file too."""
    from json import loads

    from kcache_grpc.cli import main

    path = tmp_path / "a.kcb"
    path.write_bytes(written(entries, service.signer, metadata_of(entries)))
    trust = server_id(service.signer.public_key)

    def run(*arguments: str) -> tuple[int, list[str]]:
        code = main(["bundle", "verify", *arguments, "--json", "--cache-dir", str(tmp_path / "cache")])
        return code, [finding["finding"] for finding in loads(capsys.readouterr().out)["findings"]]

    assert run(str(path), "--trust", trust, "--target", "x86-64-v2") == (1, ["missing", "missing"])
    assert run(str(path)) == (1, ["untrusted", "untrusted", "untrusted"])
    assert run(str(path), "--trust", trust, "--target", "aarch64")[1][-1] == "target"
    path.write_bytes(path.read_bytes()[:-1])
    assert run(str(path), "--trust", trust) == (1, ["truncated"])
    assert main(["bundle", "list", str(path)]) == 11
    assert main(["bundle", "verify", str(tmp_path / "missing.kcb")]) == 9
