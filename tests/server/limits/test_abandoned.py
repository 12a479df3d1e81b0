"""Work whose callers have gone is cancelled until it is worth keeping; others do not wait for it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from benchmarks.adversary.inputs import alias_bomb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from tests.server.harness.programs import add, compile_request, header, inline, result_of
from tests.server.harness.running import config_in, running

pytestmark = pytest.mark.issue(number=19, point=10)


def test_programs_that_expand_are_given_up_with_their_callers(tmp_path: Path) -> None:
    with running(config_in(tmp_path, workers=1)) as server:
        bombs = [inline(alias_bomb(levels=26, seed=seed)) for seed in range(5)]
        calls = [server.stub.CompileKernel(compile_request(bomb, "bombs"), timeout=1.0) for bomb in bombs]
        for call in calls:
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        # Each would hold its worker for two seconds of processor time, and be remembered as CompileTimeout.
        assert result_of(server.stub.CompileKernel(compile_request(inline(add(70)), "bombs"), timeout=240.0))
        stats = server.stub.GetStats(pb.GetStatsRequest(header=header("bombs")))
        assert (stats.specs, stats.kernels, stats.remembered_failures) == (1, 1, 0)


@pytest.mark.long
def test_a_program_that_expands_is_an_error_in_seconds(tmp_path: Path) -> None:
    with running(config_in(tmp_path, workers=1)) as server:
        request = compile_request(inline(alias_bomb(levels=26)), "bombs")
        with pytest.raises(grpc.RpcError) as caught:
            list(server.stub.CompileKernel(request, timeout=240.0))
        assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert "stage read" in (caught.value.details() or "")
