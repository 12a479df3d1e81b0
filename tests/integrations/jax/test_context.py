"""``kcache_grpc.jax.jit`` where more than its arguments matters: traces, settings, devices, copies."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.jax import jit
from tests.serving import ServerProcess

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy


@jit
def doubled(x: Any) -> Any:
    return x * 2


def test_function_that_calls_itself(client: kcache.Client) -> None:
    @jit(static_argnums=0, client=client, fallback="error")
    def factorial(n: int) -> Any:
        return 1 if n == 0 else n * factorial(n - 1)

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(factorial(5)), daemon=True)
    thread.start()
    thread.join(120)
    assert [int(result) for result in results] == [120]


def test_closures_over_tracers(client: kcache.Client) -> None:
    def product(w: Any) -> Any:
        return jit(lambda x: x * w, client=client, fallback="error")(3.0)

    assert float(jax.grad(product)(2.0)) == 3
    assert float(jax.jit(product)(2.0)) == 6
    np.testing.assert_array_equal(jax.vmap(product)(jnp.ones(2)), [3, 3])


def test_nans_are_found(client: kcache.Client) -> None:
    logarithm = jit(jnp.log, client=client, fallback="error")
    assert jnp.isnan(logarithm(-jnp.ones(2))).all()
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        logarithm(-jnp.ones(2))


def test_seed_offset_is_part_of_the_signature(client: kcache.Client) -> None:
    def data(seed: int) -> Any:
        return jax.random.key_data(jax.random.key(seed))

    jitted = jit(data, client=client, fallback="error")
    before = np.asarray(jitted(0))
    jax.config.update("jax_random_seed_offset", 7)
    try:
        after = np.asarray(jitted(0))
        np.testing.assert_array_equal(after, jax.jit(data)(0))
    finally:
        jax.config.update("jax_random_seed_offset", 0)
    assert not np.array_equal(before, after)


def test_copies_are_the_function() -> None:
    assert copy.deepcopy({"f": doubled})["f"] is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(jit(lambda x: x))


_TWO_DEVICES = """
import sys
import jax, jax.numpy as jnp, numpy as np
import kcache_grpc as kcache
from kcache_grpc.jax import jit

first, second = jax.devices()
function = lambda x: (x * 2, jax.random.key(0), x.astype(jnp.bfloat16) if hasattr(x, "astype") else 1)
with kcache.Client(sys.argv[1], cache_dir=sys.argv[2]) as client:
    jitted, by_jax = jit(function, client=client, fallback="error"), jax.jit(function)
    x = jnp.ones(3)
    for default in (None, second):
        for argument in (x, np.ones(3, np.float32), 2.0, jax.device_put(x, first), jax.device_put(x, second)):
            with jax.default_device(default):
                for ours, theirs in zip(jitted(argument), by_jax(argument), strict=True):
                    assert ours.devices() == theirs.devices(), (argument, default)
                    assert ours.committed == theirs.committed, (argument, default)
    assert jitted.kernels and not jitted.failures
    np.testing.assert_array_equal(jitted(x)[0] + jax.device_put(x, second), np.full(3, 3.0))
"""


def test_devices_are_those_of_jax(server: ServerProcess, tmp_path: Any) -> None:
    tmp_path.chmod(0o700)
    finished = subprocess.run(
        [sys.executable, "-c", _TWO_DEVICES, server.address, str(tmp_path)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
