"""Kernels that report their launches: the same results, and the time of each launch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kcache_grpc import ArgumentError, Client, KcacheError, Options
from kcache_grpc.runtime import _fastcall
from kcache_grpc.runtime.launch_times import measure_launches, measure_peaks
from tests.cli.test_profile import LOOP, PRODUCTS

REPORTED = Options(schedule="launches:reported")
#: As many equal operations as become a subkernel in other kernels.
EQUAL = (
    "func.func @main(%v0: tensor<16xcomplex<f32>>) -> tensor<16xcomplex<f32>> {\n"
    + "".join(
        f"  %v{n + 1} = stablehlo.fft %v{n}, type = FFT, length = [16] : "
        "(tensor<16xcomplex<f32>>) -> tensor<16xcomplex<f32>>\n"
        for n in range(32)
    )
    + "  return %v32 : tensor<16xcomplex<f32>>\n}"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Client(cache_dir=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


def arguments(shapes: list[tuple[int, ...]], dtype: str = "f4") -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("program", "arrays"),
    [
        (PRODUCTS, arguments([(96, 256), (256, 512), (512, 256)])),
        (LOOP, arguments([(1000,)])),
        (EQUAL, arguments([(16,)], "c8")),
    ],
    ids=["products", "loop", "subkernels"],
)
def test_results_have_the_same_bits(client: Client, program: str, arrays: list[np.ndarray]) -> None:
    plain, reporting = client.compile(program), client.compile(program, options=REPORTED)
    for expected, actual in zip(plain(*arrays), reporting(*arrays), strict=True):
        np.testing.assert_array_equal(expected, actual)
    times = measure_launches(reporting, arrays, 3)
    assert all(launch.runs >= 1 and launch.seconds > 0 for launch in times.launches)
    assert 0 <= times.between < times.seconds


def test_other_kernels_say_nothing_of_their_work(client: Client) -> None:
    launches = client.compile(PRODUCTS).manifest.launches
    assert {(launch.flops, launch.bytes) for launch in launches} == {("", "")}


def test_kernels_that_do_not_report_are_rejected(client: Client) -> None:
    with pytest.raises(ArgumentError, match="launches:reported"):
        measure_launches(client.compile(LOOP), arguments([(1000,)]), 1)


def test_peaks_are_rates_of_all_threads() -> None:
    measured = measure_peaks(1)
    assert measured.threads == 1
    assert measured.flops > 1e9
    assert measured.bandwidth > 1e8


def test_an_installation_without_the_extension_module_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_fastcall, "TIMED_PARALLEL_FOR")
    with pytest.raises(KcacheError, match="extension module"):
        measure_peaks(1)
