"""Many clients ask three servers for the same new kernels: each is compiled once, nobody waits for long."""

from __future__ import annotations

import pytest

from tests.server.harness import herd


@pytest.mark.long
def test_a_small_herd_has_each_kernel_compiled_once(tmp_path, postgres_server):
    (result,) = herd.run(tmp_path, postgres_server, clients=16, kernels=5, workers=1)
    assert len(result.together.replies) == 16 * 5
    assert (result.publishes, result.keys, result.compiles) == (5, 5, 5)


@pytest.mark.long
def test_64_clients_and_20_kernels_take_little_longer_than_one_client(tmp_path, postgres_server):
    rounds = herd.run(tmp_path, postgres_server, clients=64, kernels=20, rounds=3)
    for result in rounds:
        assert len(result.together.replies) == 64 * 20
        assert (result.publishes, result.keys, result.compiles) == (20, 20, 20)
    assert any(measured.together.seconds <= 1.3 * measured.alone.seconds + 1 for measured in rounds)
