"""Arrays of other frameworks beside the recording driver: each function is a case, as in ``cases.py``.

CuPy needs a GPU to be imported, so its arrays are played by a class with the few attributes that are read.
"""

from __future__ import annotations

import ctypes
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from kcache_grpc.runtime.gpu import device_memory
from kcache_grpc.runtime.gpu.device import device_numbered
from kcache_grpc.runtime.gpu.exporters import for_cupy
from tests.runtime.gpu.cases import View, array, error_of, kernel

STREAM = 77


class Played:
    """An array in the memory of a recorded GPU, as CuPy shows it."""

    __module__ = "cupy"

    def __init__(self, shape: tuple[int, ...], dtype: Any = "f4", base: Any = None) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.base = base or array(*shape, dtype="f32")
        self.data = SimpleNamespace(ptr=self.base.pointer, device_id=0)
        self.flags = SimpleNamespace(c_contiguous=True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.base.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> object:
        return self.base.__dlpack__(**keywords)


def _play() -> None:
    cupy: Any = ModuleType("cupy")
    cupy.ndarray = Played
    cupy.empty = lambda shape, dtype: Played(shape if isinstance(shape, tuple) else (shape,), dtype)
    cupy.cuda = SimpleNamespace(
        get_current_stream=lambda: SimpleNamespace(ptr=STREAM), Device=lambda _: device_context()
    )
    sys.modules["cupy"] = cupy


def device_context() -> Any:
    device = device_numbered(0)
    return device.driver.within(device.context)


def cupy_short_way() -> Any:
    _play()
    instance, x = kernel(), Played((256,))
    with device_context():
        instance(x)
        short: Any = instance._short  # pyright: ignore[reportPrivateUsage]
        (y,) = short((x,))
        others = {
            "count": (x, x),
            "type": (array(256),),
            "size": (Played((128,)),),
            "dtype": (Played((256,), "i4"),),
            "steps": (_changed(flags=SimpleNamespace(c_contiguous=False)),),
            "device": (_changed(data=SimpleNamespace(ptr=x.data.ptr, device_id=1)),),
            "view": (_changed(data=SimpleNamespace(ptr=x.data.ptr + 4, device_id=0)),),
        }
        rejected = [name for name, value in others.items() if short(value) is None]
        (plan,) = instance._gpu._plans.values()  # pyright: ignore[reportOptionalMemberAccess, reportPrivateUsage]
        assert for_cupy(plan) is not None
    outside = short((x,))  # no context is current: the long way makes one
    return {"x": x.data.ptr, "y": y.data.ptr, "rejected": rejected, "all": [*others], "outside": outside}


def _changed(**attributes: Any) -> Played:
    changed = Played((256,))
    vars(changed).update(attributes)
    return changed


def exported_short_way() -> Any:
    instance, x = kernel(), array(256)
    view = View(x, 0)
    instance(view)
    short: Any = instance._short  # pyright: ignore[reportPrivateUsage]
    (y,) = short((view,))
    others: dict[str, tuple[Any, ...]] = {
        "count": (view, view),
        "type": (x,),
        "size": (View(array(128), 0),),
        "rank": (View(array(16, 16), 0),),
        "dtype": (View(array(256, dtype="i32"), 0),),
        "device": (View(array(256, device=1), 0),),
        "view": (View(x, 4),),
        "silent": (Silent(x, 0),),
    }
    silent = Silent(x, 0)
    instance(Loud(x, 0))
    rejected = [name for name, value in others.items() if short(value) is None]
    return {
        "x": x.pointer,
        "y": y.pointer,
        "rejected": rejected,
        "all": [*others],
        "why": error_of(lambda: instance(silent))[1],
        "view": error_of(lambda: instance(View(x, 4)))[1],
    }


class Strided(View):
    """Elements some steps apart."""

    def __init__(self, base: Any, offset: int, step: int) -> None:
        super().__init__(base, offset)
        self._steps = (ctypes.c_int64 * 1)(step)

    def __dlpack__(self, **keywords: Any) -> object:
        capsule = super().__dlpack__(**keywords)
        tensor, *_ = list(device_memory._exported.values())[-1]  # pyright: ignore[reportPrivateUsage]
        tensor.strides = self._steps
        return capsule


def odd_arrays() -> Any:
    """Views that no kernel takes, the first time and once the fast path is known."""
    errors: list[str] = []
    instance, x = kernel(), array(256)
    strided = Strided(x, 0, 2)
    errors.append(error_of(lambda: instance(strided))[1])
    instance(x)
    instance(Strided(x, 0, 1))
    errors.append(error_of(lambda: instance(strided))[1])
    errors.append(error_of(lambda: instance(Strided(x, 8, 1)))[1])
    return errors


class Loud(View):
    """Another type, of which the next fast path is."""


class Silent(View):
    def __dlpack__(self, **keywords: Any) -> object:
        raise BufferError("nothing is exported today")


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
