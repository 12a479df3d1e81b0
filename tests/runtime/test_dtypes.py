"""Element types of NumPy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from kcache_grpc.errors import IntegrityError
from kcache_grpc.runtime.dtypes import DTYPES, numpy_dtype, numpy_dtypes

_PROGRAM = """
import sys
from kcache_grpc.runtime.dtypes import numpy_dtype
print(numpy_dtype("f32"), numpy_dtype("i1"), "ml_dtypes" in sys.modules)
"""


def test_types_of_numpy_import_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout == "float32 bool False\n"


@pytest.mark.parametrize("name", DTYPES)
def test_each_type_has_a_dtype(name: str) -> None:
    assert isinstance(numpy_dtype(name), np.dtype)
    assert numpy_dtype(name) == numpy_dtypes()[name]


def test_a_type_of_a_later_version() -> None:
    with pytest.raises(IntegrityError, match="unknown dtype 'f7'"):
        numpy_dtype("f7")
