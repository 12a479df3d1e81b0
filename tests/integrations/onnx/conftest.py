"""Skips where ONNX is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
