"""Memory and disk: what they give, what they reject, how they stay small."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.core import Core
from kcache_grpc.client.transport.blocking import BlockingIo, run
from kcache_grpc.model.signing import Signer
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import CONSTANT, FakeServer, FakeService


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_memory_hit_asks_nobody(client: kcache.Client, service: FakeService) -> None:
    first = client.compile(PROGRAM)
    service.calls.clear()
    again = client.compile(PROGRAM)
    assert (first.origin, again.origin) == ("compiled", "memory")
    assert client.compile(PROGRAM.encode()).origin == "memory"
    assert client.compile(str(PROGRAM)) is again
    assert not service.calls
    assert first.origin == "compiled"


def test_options_and_target_are_other_kernels(client: kcache.Client) -> None:
    client.compile(PROGRAM, target="x86-64-v2")
    slow = kcache.Options(opt_level=1)
    assert client.compile(PROGRAM, target="x86-64-v3").origin == "compiled"
    assert client.compile(PROGRAM, target="x86-64-v2", options=slow).origin == "compiled"
    assert client.compile(PROGRAM, target="x86-64-v2", options=kcache.Options()).origin == "memory"


def test_disk_hit_needs_no_server(fake: FakeServer, client: kcache.Client, new_client: NewClient) -> None:
    client.compile(PROGRAM)
    fake.stop()
    kernel = new_client(fake.address).compile(PROGRAM)
    assert kernel.origin == "disk"
    assert kernel.key == 1


def test_disk_hit_needs_no_server_when_what_is_known_of_it_is_old(
    fake: FakeServer, cache_dir: Path, service: FakeService
) -> None:
    config = ClientConfig(
        fake.address, cache_dir, strict=True, freshness=0.0, grace_period_new=0.0, timeout=120
    )
    assert run(Core(config, BlockingIo()).compile(PROGRAM, None, "host", None, None)).origin == "compiled"
    assert run(Core(config, BlockingIo()).compile(PROGRAM, None, "host", None, None)).origin == "disk"
    assert service.calls["GetCapabilities"] >= 2
    fake.stop()
    core = Core(config, BlockingIo())
    assert run(core.compile(PROGRAM, None, "host", None, None)).origin == "disk"


def test_what_is_on_disk_is_keyed_by_namespace_and_address(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, service: FakeService
) -> None:
    client.compile(PROGRAM)
    service.namespace = "other"
    service.compiled.clear()
    assert new_client(fake.address, namespace="other").compile(PROGRAM).origin == "compiled"


def test_a_new_toolchain_makes_new_kernels(fake: FakeServer, cache_dir: Path, service: FakeService) -> None:
    config = ClientConfig(fake.address, cache_dir, strict=True, freshness=0.0, timeout=120)
    run(Core(config, BlockingIo()).compile(PROGRAM, None, "host", None, None))
    service.toolchain = (("llvm", "23"),)
    service.compiled.clear()
    assert run(Core(config, BlockingIo()).compile(PROGRAM, None, "host", None, None)).origin == "compiled"
    assert run(Core(config, BlockingIo()).compile(PROGRAM, None, "host", None, None)).origin == "disk"


def flip_last(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip_last,
    "nothing in it": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "noise": lambda path: path.write_bytes(os.urandom(100)),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("folder", ["kernels", "blobs"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_a_miss_and_repaired(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, cache_dir: Path, folder: str, damage: str
) -> None:
    client.compile(PROGRAM)
    for path in files_in(cache_dir / folder):
        DAMAGES[damage](path)
    other = new_client(fake.address)
    assert other.compile(PROGRAM).origin == "remote"
    assert other.stats().client.get("disk_corrupt_entries", 0) == (0 if damage == "gone" else 1)
    assert new_client(fake.address).compile(PROGRAM).origin == "disk"


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "gone"])
def test_a_damaged_snapshot_is_asked_for_again(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, cache_dir: Path, damage: str
) -> None:
    client.compile(PROGRAM)
    [path] = files_in(cache_dir / "servers")
    DAMAGES[damage](path)
    assert new_client(fake.address).compile(PROGRAM).origin == "disk"


def test_a_kernel_of_another_program_under_this_name_is_rejected(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, cache_dir: Path
) -> None:
    client.compile(PROGRAM)
    [mine] = files_in(cache_dir / "kernels")
    content = mine.read_bytes()
    client.compile(PROGRAM + "\n")
    [other] = [path for path in files_in(cache_dir / "kernels") if path != mine]
    other.write_bytes(content)
    assert new_client(fake.address).compile(PROGRAM + "\n").origin == "remote"


def test_files_are_private_and_no_temporary_one_stays(client: kcache.Client, cache_dir: Path) -> None:
    client.compile(PROGRAM)
    assert cache_dir.stat().st_mode & 0o777 == 0o700
    for path in files_in(cache_dir):
        assert path.stat().st_mode & 0o077 == 0
        assert not path.name.startswith(".tmp-")


def test_an_open_directory_is_not_used(fake: FakeServer, new_client: NewClient, cache_dir: Path) -> None:
    cache_dir.mkdir()
    cache_dir.chmod(0o755)
    with pytest.warns(kcache.KcacheWarning, match="chmod 700"):
        client = new_client(fake.address)
    assert client.compile(PROGRAM).origin == "compiled"
    assert client.compile(PROGRAM).origin == "memory"
    assert files_in(cache_dir) == []


def test_a_directory_that_cannot_be_made_is_done_without(
    fake: FakeServer, new_client: NewClient, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(kcache.KcacheWarning, match="nothing on disk"):
        client = new_client(fake.address, cache_dir=tmp_path / "file" / "cache")
    assert client.compile(PROGRAM).origin == "compiled"


def test_a_disk_that_cannot_be_written_is_done_without(
    fake: FakeServer, new_client: NewClient, cache_dir: Path
) -> None:
    client = new_client(fake.address)
    # Root may write anywhere, but not below a file.
    for name in ("kernels", "blobs", "pins", "servers"):
        (cache_dir / name).write_text("")
    with pytest.warns(kcache.KcacheWarning, match="nothing more on disk") as caught:
        kernels = [client.compile(text) for text in (PROGRAM, PROGRAM + "\n")]
    assert [kernel.origin for kernel in kernels] == ["compiled", "compiled"]
    assert len(caught) == 1
    assert client.stats().client["disk_write_failures"] >= 1


def test_the_disk_tier_stays_within_its_bound(
    fake: FakeServer, cache_dir: Path, service: FakeService
) -> None:
    config = ClientConfig(fake.address, cache_dir, strict=True, disk_bytes=100_000, timeout=120)
    core = Core(config, BlockingIo())
    programs = [PROGRAM + "\n" * count for count in range(60)]

    def obtain(count: int) -> None:
        service.constants = (bytes([count]) * 10_000,)
        run(core.compile(programs[count], None, "host", None, None))

    obtain(0)
    [keep] = [path for path in files_in(cache_dir / "blobs") if path.stat().st_size == 10_000]
    for count in range(1, 60):
        os.utime(keep, (2e9 + count, 2e9 + count))
        obtain(count)
    kept = files_in(cache_dir / "kernels") + files_in(cache_dir / "blobs")
    assert 20_000 < sum(path.stat().st_size for path in kept) <= 120_000
    assert keep in kept
    assert run(core.stats()).client["disk_evictions"] > 0


def test_temporary_files_of_dead_writers_go(fake: FakeServer, cache_dir: Path) -> None:
    config = ClientConfig(fake.address, cache_dir, strict=True, timeout=120)
    core = Core(config, BlockingIo())
    old, young = cache_dir / "blobs" / "aa" / ".tmp-old", cache_dir / "blobs" / "aa" / ".tmp-young"
    old.parent.mkdir(parents=True)
    old.write_text("")
    young.write_text("")
    os.utime(old, (1, 1))
    run(core.compile(PROGRAM, None, "host", None, None))
    assert not old.exists()
    assert young.exists()


def test_memory_is_bounded_but_kernels_come_back_from_disk(fake: FakeServer, cache_dir: Path) -> None:
    config = ClientConfig(fake.address, cache_dir, strict=True, memory_kernels=2, timeout=120)
    core = Core(config, BlockingIo())
    programs = [PROGRAM + "\n" * count for count in range(4)]
    for program in programs:
        run(core.compile(program, None, "host", None, None))
    assert core.recall(programs[0], None, "host", None) is None
    assert run(core.compile(programs[0], None, "host", None, None)).origin == "disk"
    assert core.recall(programs[3], None, "host", None) is not None


def test_a_stale_answer_is_refreshed_beside_and_a_new_epoch_takes_effect(
    fake: FakeServer, cache_dir: Path, service: FakeService
) -> None:
    refreshed = threading.Event()
    config = ClientConfig(fake.address, cache_dir, strict=True, timeout=120)
    core = Core(config, BlockingIo())
    run(core.compile(PROGRAM, None, "host", None, None))
    connection = core._services.main
    state = connection.last_state
    assert state is not None
    connection._state = replace(state, fetched=state.fetched - 1000)
    accept = connection._accept

    def accepted(*arguments: object) -> None:
        accept(*arguments)  # type: ignore[arg-type]
        refreshed.set()

    connection._accept = accepted  # type: ignore[method-assign]
    service.epoch = 2
    service.compiled.clear()
    assert core.recall(PROGRAM, None, "host", None) is not None
    assert refreshed.wait(120)
    assert core.recall(PROGRAM, None, "host", None) is None
    assert run(core.compile(PROGRAM, None, "host", None, None)).manifest.epoch == 2


@pytest.mark.parametrize("change", [{"epoch": 2}, {"toolchain": (("llvm", "23"),)}])
def test_what_was_disowned_while_it_came_is_not_in_memory(
    fake: FakeServer, cache_dir: Path, service: FakeService, change: dict[str, Any]
) -> None:
    """The server says so between the check of a kernel and the last of its bytes."""
    service.constants = (CONSTANT,)
    config = ClientConfig(fake.address, cache_dir, strict=True, freshness=0.0, timeout=120)
    core = Core(config, BlockingIo())

    def disown(reply: Any) -> Any:
        for name, value in change.items():
            setattr(service, name, value)
        return reply

    service.bend["ReadArtifact"] = disown
    run(core.compile(PROGRAM, None, "host", None, None))
    assert core.recall(PROGRAM, None, "host", None) is None
    service.compiled.clear()
    assert run(core.compile(PROGRAM, None, "host", None, None)).origin == "compiled"
    assert core.recall(PROGRAM, None, "host", None) is not None


TWO_PROCESSES = """
import sys, kcache_grpc as kcache
address, cache, program = sys.argv[1:]
with kcache.Client(address, cache_dir=cache, strict=True, timeout=120) as client:
    kernels = [client.compile(program + "\\n" * n) for n in range(20)]
    print(sum(kernel.key for kernel in kernels))
"""


def test_two_processes_share_one_folder(
    fake: FakeServer, cache_dir: Path, service: FakeService, new_client: NewClient
) -> None:
    service.constants = (CONSTANT,)
    command = [sys.executable, "-c", TWO_PROCESSES, fake.address, str(cache_dir), PROGRAM]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=240)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs[0] == outputs[1]
    fake.stop()
    client = new_client(fake.address)
    assert {client.compile(PROGRAM + "\n" * n).origin for n in range(20)} == {"disk"}


def test_nothing_warns_in_a_plain_run(fake: FakeServer, new_client: NewClient) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new_client(fake.address).compile(PROGRAM)


@pytest.mark.issue(number=19, point=25)
def test_local_hits_of_all_clients_are_in_the_stats(
    client: kcache.Client, new_client: NewClient, fake: FakeServer
) -> None:
    client.compile(PROGRAM)
    client.compile(PROGRAM)
    other = new_client(fake.address)
    assert other.compile(PROGRAM).origin == "disk"
    other.close()
    local = dict(client.stats().local)
    assert local.pop("since")
    assert local == {
        "memory_kernels": 1,
        "disk_kernels": 1,
        "remote_kernels": 0,
        "compiled_kernels": 1,
        "preloaded_kernels": 0,
    }
    assert client.stats().local["memory_kernels"] == 1  # counted once


@pytest.mark.issue(number=19, point=25)
def test_clients_that_nobody_closed_count_too(
    cache_dir: Path, fake: FakeServer, client: kcache.Client
) -> None:
    client.compile(PROGRAM)
    body = f"""
import os
import kcache_grpc as kcache
client = kcache.Client({fake.address!r}, cache_dir={str(cache_dir)!r})
client.compile({PROGRAM!r})
child = os.fork()
if not child:
    client.compile({PROGRAM!r})
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", body], check=True, timeout=120)
    local = client.stats().local
    assert (local["disk_kernels"], local["memory_kernels"], local["compiled_kernels"]) == (1, 1, 1)


@pytest.mark.issue(number=19, point=25)
def test_damaged_totals_start_again(cache_dir: Path, client: kcache.Client) -> None:
    client.compile(PROGRAM)
    assert client.stats().local
    (cache_dir / "totals.json").write_text("{")
    assert client.stats().local == {}
    client.compile(PROGRAM)
    assert client.stats().local["memory_kernels"] == 1


@pytest.mark.issue(number=19, point=28)
@pytest.mark.parametrize("folder", ["kernels", "blobs", "servers"])
def test_a_fifo_in_the_cache_is_a_miss_and_replaced(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, cache_dir: Path, folder: str
) -> None:
    client.compile(PROGRAM)
    for path in files_in(cache_dir / folder):
        path.unlink()
        os.mkfifo(path)
    assert new_client(fake.address).compile(PROGRAM).origin == ("disk" if folder == "servers" else "remote")
    assert new_client(fake.address).compile(PROGRAM).origin == "disk"
    assert all(path.is_file() for path in (cache_dir / folder).rglob("*") if not path.is_dir())


@pytest.mark.issue(number=19, point=28)
def test_a_fifo_as_a_pin_is_a_damaged_pin(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, cache_dir: Path
) -> None:
    client.compile(PROGRAM)
    [pin] = files_in(cache_dir / "pins")
    pin.unlink()
    os.mkfifo(pin)
    with pytest.raises(kcache.IntegrityError, match="kcache pins forget"):
        new_client(fake.address).compile(PROGRAM)


@pytest.mark.issue(number=19, point=28)
def test_a_fifo_as_a_key_is_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "signing.key", 0o600)
    with pytest.raises(kcache.IntegrityError, match="not a regular file"):
        Signer.from_file(tmp_path / "signing.key")
