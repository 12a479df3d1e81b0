"""A kernel for sizes other than the program's own needs evidence: at the server, from any client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import common_pb2, explain_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.manifest import Manifest
from tests.server.harness.dynamic_programs import matmul
from tests.server.harness.programs import (
    TARGET,
    by_digest,
    compile_request,
    digest,
    header,
    inline,
    kernels_request,
    result_of,
)
from tests.server.harness.running import Running

pytestmark = pytest.mark.issue(number=19, point=2)

DYNAMIC, AUTO = common_pb2.DYNAMIC_MODE_DYNAMIC, common_pb2.DYNAMIC_MODE_AUTO


@pytest.fixture
def client(server: Running, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kcache.Client]:
    """In a namespace of the test's own."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:90]
    with kcache.Client(server.address, namespace=name, cache_dir=tmp_path / "cache", strict=True) as client:
        yield client


def scaled(rows: int, factor: float, columns: int = 3) -> str:
    """``x * factor``."""
    kind = f"tensor<{rows}x{columns}xf32>"
    return f"""func.func @main(%x: {kind}) -> {kind} {{
  %c = stablehlo.constant dense<{factor!r}> : {kind}
  %0 = stablehlo.multiply %x, %c : {kind}
  return %0 : {kind} }}"""


def shifted(rows: int, first: float) -> str:
    """``x`` and a table that is lifted, whose first number differs."""
    table = np.full(2048, 1.5, np.float32)
    table[0] = first
    kind, wide = f"tensor<{rows}x2048xf32>", "tensor<2048xf32>"
    return f"""func.func @main(%x: {kind}) -> {kind} {{
  %c = stablehlo.constant dense<"0x{table.tobytes().hex().upper()}"> : {wide}
  %b = stablehlo.broadcast_in_dim %c, dims = [1] : ({wide}) -> {kind}
  %0 = stablehlo.add %x, %b : {kind}
  return %0 : {kind} }}"""


def arg_spec(kernel: kcache.Kernel) -> str:
    return kernel.manifest.arg_spec


def test_a_static_program_alone_is_rejected(client: kcache.Client) -> None:
    wishes: list[dict[str, Any]] = [{}, {"symbols": [(0, 0)]}, {"symbols": {(0, 0): kcache.Dim(2, 64)}}]
    for requirements in wishes:
        for _ in range(2):  # unknown to the server, then known
            with pytest.raises(kcache.ArgumentError, match="needs evidence") as rejected:
                client.compile(scaled(4, 0.5), dynamic=True, **requirements)
            assert "compile([p4, p6], dynamic=True)" in str(rejected.value)
    with pytest.raises(kcache.ArgumentError, match="needs evidence"):
        client.autotune(scaled(4, 0.5), dynamic=True, choices={"unroll": []}, budget=0.1)
    assert client.stats().kernels == 0


def test_a_constant_that_is_a_size_is_no_evidence(client: kcache.Client) -> None:
    programs = [scaled(rows, 1 / rows) for rows in (4, 8)]
    with pytest.raises(kcache.ArgumentError, match=r"program 2 is no evidence .* its spec differs"):
        client.compile(programs, dynamic=True)
    for program in programs:
        assert arg_spec(client.compile(program, dynamic="auto")).isascii()
        assert "s0" not in arg_spec(client.compile(program, dynamic="auto"))


def test_two_programs_show_what_differs_between_them(client: kcache.Client) -> None:
    kernel = client.compile([scaled(4, 0.5), scaled(6, 0.5)], dynamic=True)
    assert arg_spec(kernel) == "f32[s0,3]"
    assert kernel.binding.program_digest == digest(scaled(4, 0.5).encode())
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    np.testing.assert_array_equal(kernel(x)[0], x / 2)
    with pytest.raises(kcache.ArgumentError, match="axis 1 is 5 instead of 3"):
        kernel(np.ones((6, 5), np.float32))
    with pytest.raises(kcache.ArgumentError, match=r"axis 1 of argument 0 \(s1\) needs evidence"):
        client.compile([scaled(4, 0.5), scaled(6, 0.5)], dynamic=True, symbols=[(0, 1)])
    with pytest.raises(kcache.ArgumentError, match=r"\(s0\) needs evidence, and it changes together"):
        client.compile([scaled(4, 0.5), scaled(6, 0.5, 5)], dynamic=True)
    both = client.compile([scaled(4, 0.5), scaled(6, 0.5), scaled(4, 0.5, 5)], dynamic=True)
    assert arg_spec(both) == "f32[s0,s1]"


def test_a_kernel_with_evidence_is_none_for_the_program_without(client: kcache.Client) -> None:
    """Neither from memory, nor from disk, nor from the service: its name is that of the evidence, too."""
    pair = [scaled(4, 0.5), scaled(6, 0.5)]
    assert client.compile(pair, dynamic=True).origin == "compiled"
    assert client.compile(pair, dynamic=True).origin == "memory"
    core = client._core  # pyright: ignore[reportPrivateUsage]
    with kcache.Client(
        core.config.address,
        namespace=core.config.namespace,
        cache_dir=core.config.cache_dir,
        strict=True,
    ) as other:
        with pytest.raises(kcache.ArgumentError, match="needs evidence"):
            other.compile(pair[0], dynamic=True)
        assert other.compile(pair, dynamic=True).origin == "disk"
        with pytest.raises(kcache.ArgumentError, match="needs evidence"):
            other.compile(pair[0], dynamic=True)
        assert other.compile([pair[1], pair[0]], dynamic=True).origin == "remote"


def test_lifted_constants_are_constants_too(client: kcache.Client) -> None:
    """They are not in the spec, and may be computed from sizes all the same."""
    with pytest.raises(kcache.ArgumentError, match=r"program 2 is no evidence .* its constants differ"):
        client.compile([shifted(4, 4.0), shifted(6, 6.0)], dynamic=True)
    for rows in (4, 6, 7):
        assert "s0" not in arg_spec(client.compile(shifted(rows, float(rows)), dynamic="auto"))
    kernel = client.compile([shifted(4, 4.0), shifted(5, 4.0)], dynamic=True)
    assert kernel(np.zeros((2, 2048), np.float32))[0][1, 0] == 4.0
    assert len({client.store(shifted(rows, float(rows))) for rows in (4, 6)}) == 1


def test_automatic_mode_serves_no_kernel_for_sizes_without_evidence(client: kcache.Client) -> None:
    with pytest.warns(kcache.KcacheWarning, match="results at other sizes are wrong"):
        whole = client.compile(matmul(4, 8, 7), dynamic="assume")
    assert arg_spec(whole) == "f32[s0,s1];f32[s1,s2]"
    assert arg_spec(client.compile(matmul(4, 8, 7), dynamic="auto")) == "f32[4,8];f32[8,7]"
    assert arg_spec(client.compile(matmul(4, 9, 7), dynamic="auto")) == "f32[4,s1];f32[s1,7]"
    assert arg_spec(client.compile([matmul(7, 9, 7), matmul(7, 9, 6)], dynamic="auto")) == arg_spec(whole)


@pytest.mark.parametrize("dynamic", [False, "auto", True, "assume"])
@pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning")
def test_dynamic_dimensions_are_evidence(client: kcache.Client, dynamic: Any) -> None:
    kernel = client.compile(matmul("?", 8, 7), dynamic=dynamic)
    expected = "f32[s0,s1];f32[s1,s2]" if dynamic == "assume" else "f32[s0,8];f32[8,7]"
    assert arg_spec(kernel) == expected


def test_lists_that_mean_nothing_are_rejected(client: kcache.Client) -> None:
    with pytest.raises(kcache.ArgumentError, match="several programs are evidence"):
        client.compile([scaled(4, 0.5), scaled(6, 0.5)])
    with pytest.raises(kcache.ArgumentError, match="the list of programs is empty"):
        client.compile([], dynamic=True)


class TestOnTheWire:
    """Clients in other languages: the server itself rejects, whatever they send."""

    def rejected(self, call: Any) -> tuple[Any, str]:
        with pytest.raises(grpc.RpcError) as error:
            list(call)
        return error.value.code(), error.value.details()  # type: ignore[attr-defined]

    def test_no_evidence(self, server: Running) -> None:
        body, shapes = matmul(4, 8, 7).encode(), common_pb2.DynamicShapes(mode=DYNAMIC)
        axis = common_pb2.SymbolAxis(arg=0, axis=0)
        named = common_pb2.DynamicShapes(mode=DYNAMIC, axes=[axis])
        server.stub.StoreGraph(pb.StoreGraphRequest(header=header("noevidence"), graph=inline(body)))
        explained = explain_pb2.ExplainRequest(
            header=header("noevidence"), graph=by_digest(body), target=TARGET, shapes=shapes
        )
        for call in (
            server.stub.CompileKernel(compile_request(inline(body), "noevidence", shapes=shapes)),
            server.stub.CompileKernel(compile_request(by_digest(body), "noevidence", shapes=named)),
            server.stub.GetKernels(kernels_request([body], "noevidence", shapes=shapes)),
        ):
            code, details = self.rejected(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "needs evidence" in details
        with pytest.raises(grpc.RpcError) as error:
            server.stub.Explain(explained)
        assert "needs evidence" in error.value.details()  # type: ignore[attr-defined]

    def test_evidence_is_checked(self, server: Running) -> None:
        own, other, foreign = matmul(4, 8, 7).encode(), matmul(6, 8, 7).encode(), scaled(4, 2.0).encode()

        def asked(evidence: bytes, mode: Any = DYNAMIC) -> Any:
            shapes = common_pb2.DynamicShapes(mode=mode, evidence=[digest(evidence)])
            return server.stub.CompileKernel(compile_request(inline(own), "checked", shapes=shapes))

        for mode in (DYNAMIC, AUTO):
            code, details = self.rejected(asked(other, mode))
            assert code is grpc.StatusCode.NOT_FOUND
            assert "is evidence of the request, is not stored" in details
        for body in (other, foreign, own):
            server.stub.StoreGraph(pb.StoreGraphRequest(header=header("checked"), graph=inline(body)))
        code, details = self.rejected(asked(foreign))
        assert (code, "its spec differs" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        code, details = self.rejected(asked(own))
        assert (code, "is 4 in all of the programs" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        manifest = Manifest.from_bytes(result_of(asked(other)).manifest.payload)
        assert manifest.arg_spec == "f32[s0,8];f32[8,7]"
        assert self.rejected(asked(foreign))[0] is grpc.StatusCode.INVALID_ARGUMENT

    def test_wishes_that_mean_nothing(self, server: Running) -> None:
        body = matmul(4, 8, 7).encode()
        for shapes, says in (
            (common_pb2.DynamicShapes(evidence=[bytes(32)]), "several programs are evidence"),
            (common_pb2.DynamicShapes(mode=AUTO, assume=True), "only a dynamic kernel"),
            (common_pb2.DynamicShapes(mode=DYNAMIC, evidence=[b"short"]), "not 32 bytes"),
        ):
            code, details = self.rejected(
                server.stub.CompileKernel(compile_request(inline(body), "nothing", shapes=shapes))
            )
            assert (code, says in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_kernels_of_automatic_mode_take_what_their_client_has_seen(
    server: Running, client: kcache.Client, tmp_path: Path
) -> None:
    """x * n at 4 and x * (n - 2) at 6 are one program but for its size: another client's is no evidence."""
    four, six = scaled(4, 4.0), scaled(6, 4.0)
    client.compile(six, dynamic="auto")
    namespace = client._core.config.namespace  # pyright: ignore[reportPrivateUsage]
    settings: dict[str, Any] = {"namespace": namespace, "cache_dir": tmp_path / "other", "strict": True}
    x = np.ones((5, 3), np.float32)
    for origin in ("compiled", "disk"):
        with kcache.Client(server.address, **settings) as other:
            kernel = other.compile(four, dynamic="auto")
            assert (kernel.origin, arg_spec(kernel)) == (origin, "f32[s0,3]")
            assert kernel(x[:4])[0][0, 0] == 4.0
            with pytest.raises(kcache.ArgumentError, match=r"axis 0 \(s0\) is 5, and nothing shows"):
                kernel(x)
            with pytest.raises(kcache.ArgumentError, match="nothing shows"):
                other.compile(four, dynamic="auto")(x)
            other.compile(six, dynamic="auto")
            assert kernel(x)[0][4, 2] == 4.0
            assert other.compile([four, six], dynamic="auto")(x)[0][4, 2] == 4.0
    with kcache.Client(server.address, **settings) as third:
        assert third.compile([four, six], dynamic="auto")(x)[0][4, 2] == 4.0


class TestBoundArguments:
    """What a PyTorch program brings never reaches the server, and may be computed from sizes, too."""

    def exported(self, module: Any, rows: int) -> Any:
        torch: Any = pytest.importorskip("torch")
        return torch.export.export(module, (torch.ones(rows, 3),))

    def scaled(self) -> Any:
        torch: Any = pytest.importorskip("torch")

        class Scaled(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x * torch.tensor([1.0, 2.0, float(x.shape[0])])

        return Scaled()

    def test_values_that_differ_are_no_evidence(self, client: kcache.Client) -> None:
        module = self.scaled()
        programs = [self.exported(module, rows) for rows in (4, 6)]
        with pytest.raises(kcache.ArgumentError, match=r"program 2 is no evidence .*has other values"):
            client.compile(programs, dynamic=True)
        four, six = (client.compile(program, dynamic="auto") for program in programs)
        assert arg_spec(six).startswith("f32[s0,3]")
        assert six(np.ones((6, 3), np.float32))[0][0, 2] == 6.0
        assert four(np.ones((4, 3), np.float32))[0][0, 2] == 4.0
        for kernel in (six, client.compile(programs[1], dynamic="auto")):
            with pytest.raises(kcache.ArgumentError, match=r"axis 0 \(s0\) is 5, and nothing shows"):
                kernel(np.ones((5, 3), np.float32))

    @pytest.mark.parametrize("dynamic", [True, "auto"])
    def test_weights_that_are_the_same_are(self, client: kcache.Client, dynamic: Any) -> None:
        torch: Any = pytest.importorskip("torch")
        module = torch.nn.Linear(3, 2).requires_grad_(False)
        programs = [self.exported(module, rows) for rows in (4, 6)]
        x = torch.ones(9, 3)
        kernel = client.compile(programs, dynamic=dynamic)
        torch.testing.assert_close(kernel(x)[0], module(x))
        if dynamic == "auto":
            for program in programs:
                torch.testing.assert_close(client.compile(program, dynamic="auto")(x)[0], module(x))
