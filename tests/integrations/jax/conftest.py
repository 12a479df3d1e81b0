"""Skips where JAX is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
