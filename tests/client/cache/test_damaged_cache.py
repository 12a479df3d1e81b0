"""A damaged cache, a full quota, another version: none of them stops a program; wrong identities do."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc import embedded
from kcache_grpc.model.signing import Signer
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService, Rejection

pytestmark = [pytest.mark.issue(number=19, point=20), pytest.mark.timeout(900)]

DOUBLE = (
    "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %0 = stablehlo.add %a, %a : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"
)
SQUARE = DOUBLE.replace("add", "multiply")


@pytest.fixture(autouse=True)
def _end_embedded_services() -> Any:
    """Those of a test end with it, not with the process."""
    yield
    for process in list(embedded._running.processes.values()):
        process.release()
    embedded._running.processes.clear()


def warned(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in caught if issubclass(each.category, kcache.KcacheWarning)]


def compiled(client: kcache.Client, program: str = DOUBLE) -> tuple[kcache.Kernel, list[str]]:
    """A kernel that gives the right numbers, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = client.compile(program)
    (result,) = kernel(np.array([0, 1, 2, 3], np.float32))
    expected = [0, 2, 4, 6] if program is DOUBLE else [0, 1, 4, 9]
    np.testing.assert_array_equal(result, np.array(expected, np.float32))
    return kernel, warned(caught)


def test_a_damaged_embedded_store_is_set_aside(cache_dir: Path, new_client: NewClient) -> None:
    """Once as the service starts, and once as it uses the store."""
    folder = embedded.state_dir(cache_dir)
    folder.mkdir(mode=0o700, parents=True)
    cache_dir.chmod(0o700)
    embedded.store_file(folder).write_bytes(b"garbage" * 1000)
    client = new_client(None)
    first, [warning] = compiled(client)
    [aside] = embedded.damaged_directories(cache_dir)
    assert embedded.store_file(aside).read_bytes() == b"garbage" * 1000
    assert str(aside) in warning
    with closing(sqlite3.connect(embedded.store_file(folder))) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DROP TABLE kernels")
        connection.commit()
    second, [warning] = compiled(client, SQUARE)
    assert len(embedded.damaged_directories(cache_dir)) == 2
    assert str(embedded.damaged_directories(cache_dir)[-1]) in warning
    assert first.server_id != second.server_id
    assert compiled(client, DOUBLE)[1] == []


def damage_header(folder: Path) -> None:
    with embedded.store_file(folder).open("r+b") as file:
        file.write(b"\0" * 4096)


def damage_pages(folder: Path) -> None:
    size = embedded.store_file(folder).stat().st_size
    with embedded.store_file(folder).open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xa5" * (size - 5 * 4096))


def lose_key(folder: Path) -> None:
    (folder / "signing.key").unlink()


def damage_key(folder: Path) -> None:
    (folder / "signing.key").write_bytes(b"short")


@pytest.mark.long
@pytest.mark.parametrize("damage", [damage_header, damage_pages, lose_key, damage_key])
def test_every_damage_is_set_aside(
    cache_dir: Path, new_client: NewClient, damage: Callable[[Path], None]
) -> None:
    first, _ = compiled(new_client(None))
    for process in embedded._running.processes.values():
        process.release()
    embedded._running.processes.clear()
    damage(embedded.state_dir(cache_dir))
    (cache_dir / "kernels").rename(cache_dir / "elsewhere")
    again, [warning] = compiled(new_client(None))
    assert again.server_id != first.server_id
    assert str(embedded.damaged_directories(cache_dir)[0]) in warning


@pytest.mark.long
def test_a_store_of_a_newer_version_stays_as_it_is(cache_dir: Path, new_client: NewClient) -> None:
    compiled(new_client(None))
    for process in embedded._running.processes.values():
        process.release()
    embedded._running.processes.clear()
    store = embedded.store_file(embedded.state_dir(cache_dir))
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    (cache_dir / "kernels").rename(cache_dir / "elsewhere")
    before = store.read_bytes()
    kernel, warning = compiled(new_client(None))
    assert (kernel.key, warning, store.read_bytes()) == (1, [], before)
    assert len(embedded.folders(cache_dir)) == 2
    assert not embedded.damaged_directories(cache_dir)


@pytest.mark.long
def test_a_folder_that_cannot_be_used_is_replaced_by_a_temporary_one(
    cache_dir: Path, new_client: NewClient
) -> None:
    cache_dir.mkdir(mode=0o700)
    embedded.state_dir(cache_dir).write_text("a file")
    _, [warning] = compiled(new_client(None))
    assert str(embedded.state_dir(cache_dir)) in warning
    assert embedded.state_dir(cache_dir).read_text() == "a file"


def full_quota(reply: Any) -> Any:
    message = "namespace default may hold 1 kernels"
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    raise Rejection(code, message, "RESOURCE_EXHAUSTED", limit="quota.kernels")


def disowned_toolchain(reply: Any) -> Any:
    code = grpc.StatusCode.PERMISSION_DENIED
    raise Rejection(code, "toolchain is disowned", "PERMISSION_DENIED", toolchain="ab")


def unknown_status(reply: Any) -> Any:
    for result in reply.results:
        result.status = 99
    return reply


@pytest.mark.parametrize(
    ("method", "bend", "error", "counter"),
    [
        ("CompileKernel", full_quota, kcache.ResourceExhausted, "quota"),
        ("GetKernels", disowned_toolchain, kcache.PermissionDenied, "version_skew"),
        ("GetKernels", unknown_status, kcache.IntegrityError, "version_skew"),
    ],
)
def test_what_a_service_cannot_do_the_embedded_one_does(
    fake: FakeServer,
    service: FakeService,
    embedded_service: FakeService,
    new_client: NewClient,
    method: str,
    bend: Any,
    error: type[kcache.KcacheError],
    counter: str,
) -> None:
    service.bend[method] = bend
    with pytest.raises(error):
        new_client(fake.address).compile(PROGRAM)
    client = new_client(fake.address, strict=False)
    with pytest.warns(kcache.KcacheWarning, match="an embedded service compiles instead"):
        assert client.compile(PROGRAM).service == "embedded"
    assert client.stats().client[f"fallbacks_{counter}"] == 1


def test_a_kernel_of_a_later_version_is_compiled_here(
    fake: FakeServer, service: FakeService, embedded_service: FakeService, new_client: NewClient
) -> None:
    service.abi = 99
    client = new_client(fake.address, strict=False)
    with pytest.warns(kcache.KcacheWarning, match="version 99 of the C ABI"):
        assert client.compile(PROGRAM).service == "embedded"


def test_a_damaged_pin_trusts_nobody_and_stops_no_program(
    fake: FakeServer, embedded_service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    new_client(fake.address).compile(PROGRAM)
    [pin] = (cache_dir / "pins").iterdir()
    pin.write_text("{")
    with pytest.raises(kcache.IntegrityError, match=r"is damaged.* kcache pins forget"):
        new_client(fake.address).compile(PROGRAM)
    with pytest.warns(kcache.KcacheWarning, match=r"kcache pins forget .* an embedded service compiles"):
        assert new_client(fake.address, strict=False).compile(PROGRAM).service == "embedded"
    assert pin.read_text() == "{"


def test_wrong_tokens_and_changed_identities_stay_errors(
    fake: FakeServer, service: FakeService, embedded_service: FakeService, new_client: NewClient
) -> None:
    def reject(reply: Any) -> Any:
        raise Rejection(grpc.StatusCode.UNAUTHENTICATED, "a wrong token", "PERMISSION_DENIED")

    service.bend["GetKernels"] = reject
    with pytest.raises(kcache.PermissionDenied):
        new_client(fake.address, strict=False).compile(PROGRAM)
    del service.bend["GetKernels"]
    service.signer = Signer.generate()
    with pytest.raises(kcache.IntegrityError, match="kcache pins forget"):
        new_client(fake.address, strict=False).compile(PROGRAM)
    assert not embedded_service.calls
