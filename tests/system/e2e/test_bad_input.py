"""Bad input: a typed error that says what is wrong, nothing stored, and the server goes on serving."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import kcache_grpc as kcache
from tests.serving import ServerProcess
from tests.system.e2e import audit_store
from tests.system.e2e.hostile import HOSTILE, Hostile
from tests.system.e2e.programs import scale_and_shift

#: Seconds within which every rejection must come, on a slow and shared machine.
_DEADLINE = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    cache = tmp_path_factory.mktemp("cache")
    with kcache.Client(server.address, cache_dir=cache, strict=True, timeout=_DEADLINE) as connected:
        connected.compile(scale_and_shift(0))
        yield connected


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.long] if "million" in each.name else [])
        for each in HOSTILE
    ],
)
def test_a_bad_program_gets_its_error_and_leaves_no_trace(
    hostile: Hostile, client: kcache.Client, server: ServerProcess
) -> None:
    program = hostile.make()
    started = time.monotonic()
    for call in (client.store, client.compile):
        with pytest.raises(hostile.errors) as caught:
            call(program, format=hostile.format)
        message = str(caught.value).lower()
        assert not hostile.words or any(word in message for word in hostile.words), message
        assert len(message) < 4000
    assert time.monotonic() - started < 2 * _DEADLINE
    assert client.count() == 1
    assert client.compile(scale_and_shift(0)).key == 1
    assert audit_store.count(server.database, "specs") == 1
    assert audit_store.count(server.database, "kernels") == 1


def test_the_server_is_whole_after_all_of_it(client: kcache.Client, server: ServerProcess) -> None:
    assert client.compile(scale_and_shift(1)).key == 2
    assert audit_store.complaints(server.database) == []
