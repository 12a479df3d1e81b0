"""Linalg on tensors into the canonical graph: structured operations whole, scalars and tensors as nodes."""

from __future__ import annotations

from kcache_compiler.canonical.importer import Importer


class LinalgImporter(Importer):
    """Imports a linalg program; every operation is generic, names and order are gone."""

    contents: dict[bytes, bytes] = {}
