"""Nothing is compiled twice: not for another name, another process, or after a crash."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pytest

import kcache_grpc as kcache
from tests.serving import ServerProcess
from tests.system.e2e import audit_store
from tests.system.e2e.programs import scale_and_shift

_CHILD = """
import json, sys
import kcache_grpc as kcache
import numpy as np
address, cache, program = sys.argv[1:]
with kcache.Client(address, cache_dir=cache, strict=True) as client:
    kernel = client.compile(program)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (out,) = kernel(x, x)
    print(json.dumps([kernel.key, kernel.origin, float(out.sum())]))
"""


def _in_another_process(address: str, cache: Path, program: str) -> list[object]:
    command = [sys.executable, "-c", _CHILD, address, str(cache), program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_programs_that_differ_in_names_and_locations_share_one_key_and_one_compile(tmp_path: Path) -> None:
    first = scale_and_shift(4)
    second = scale_and_shift(4, names=("alpha", "beta"), label="elsewhere").replace(
        "return %1", "// moved\n    return %1"
    )
    second = second.replace(
        "stablehlo.add %0, %beta : tensor<4x3xf32>",
        'stablehlo.add %0, %beta : tensor<4x3xf32> loc("a.py":7:3)',
    )
    with ServerProcess(tmp_path) as server:
        first_result = _in_another_process(server.address, tmp_path / "one", first)
        two = _in_another_process(server.address, tmp_path / "two", second)
        with kcache.Client(server.address, cache_dir=tmp_path / "three", strict=True) as client:
            assert client.count() == 1
            assert client.stats().compiles == 1
    assert first_result == [1, "compiled", 66.0 * 5 + 66.0]
    assert two == [1, "remote", 66.0 * 5 + 66.0]
    assert audit_store.complaints(server.database) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)])
def test_a_server_killed_at_random_moments_loses_nothing_and_repeats_nothing(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    kills = sorted(rng.sample(range(5, 190), 4))
    with ServerProcess(tmp_path) as server:
        keys = _compile_while_killing(server, tmp_path, total=200, kills=kills)
        with kcache.Client(server.address, cache_dir=tmp_path / "after", strict=True) as client:
            assert client.count() == 200
            again = {number: client.compile(scale_and_shift(number)) for number in range(200)}
    assert sorted(keys.values()) == list(range(1, 201))
    assert {number: kernel.key for number, kernel in again.items()} == keys
    assert {kernel.origin for kernel in again.values()} == {"remote"}
    assert audit_store.complaints(server.database) == []
    assert audit_store.count(server.database, "kernels") == 200


def _compile_while_killing(
    server: ServerProcess, folder: Path, *, total: int, kills: list[int]
) -> dict[int, int]:
    """Keys of ``total`` programs asked for by 16 threads; the server dies after each count in ``kills``."""
    with kcache.Client(server.address, cache_dir=folder / "cache", strict=True, timeout=240) as client:
        restarting = threading.Lock()

        def ask(number: int) -> tuple[int, int]:
            while True:
                try:
                    kernel = client.compile(scale_and_shift(number))
                    break
                except kcache.Unavailable:
                    with restarting:  # wait until the server is back, then ask again
                        continue
            x = np.full((4, 3), 2, np.float32)
            (out,) = kernel(x, x)
            assert (out == 2 * (number + 1) + 2).all()
            return number, kernel.key

        keys: dict[int, int] = {}
        with ThreadPoolExecutor(16) as pool:
            pending = [pool.submit(ask, number) for number in range(total)]
            for done in as_completed(pending):
                number, key = done.result()
                keys[number] = key
                if len(keys) in kills:
                    with restarting:
                        server.kill()
                        server.start()
        return keys
