"""Imports into a store: whole kernels only, also beside other imports, and specs of one canonicalizer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import bundles as many
from kcache_grpc.bundle import open_bundle
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.signing import Signer, server_id
from kcache_grpc.service.bundles.export import Export
from kcache_grpc.service.bundles.importing import NEW, Import, Imported
from kcache_grpc.service.bundles.selection import Selection
from kcache_grpc.service.graphs.canonicalizer_upgrade import CanonicalizerUpgrade
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.values import Caller
from kcache_grpc.storage import Store, open_store

pytestmark = pytest.mark.issue(number=20, point=4)

COUNT = 12
SIGNER = Signer.generate()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "b.kcb"
    with open_store("memory:") as store, path.open("wb") as file:
        namespace = many.fill(store, SIGNER, COUNT, many.compiled())
        Export(store, SIGNER, namespace, "0").write(Selection(everything=True), file)
    return path


def run(store: Store, path: Path, canonicalizer: int = many.CANONICALIZER) -> Imported:
    imports = Import(
        store,
        Signer.generate(),
        QuotaEviction(store),
        CanonicalizerUpgrade(store, canonicalizer),
        canonicalizer,
    )
    with open_bundle(path) as opened:
        rejected = imports.check(opened, [server_id(SIGNER.public_key)])
        namespace = store.get_or_create_namespace("default")
        *_, last = imports.store(opened, namespace, Caller(), rejected)
    assert isinstance(last, Imported)
    return last


def test_imports_side_by_side_store_each_entry_once(bundle: Path, tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.sqlite", migrate=True) as store:
        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda _: run(store, bundle), range(3)))
        assert {result.rejected for result in done} == {0}
        assert sum(result.new for result in done) == 2 * COUNT
        namespace = store.get_or_create_namespace("default")
        assert (store.count_specs(namespace), store.stats(namespace).kernels) == (COUNT, COUNT)


def test_an_import_that_ends_early_leaves_whole_kernels_and_goes_on_later(bundle: Path) -> None:
    with open_store("memory:") as store, open_bundle(bundle) as opened:
        version = many.CANONICALIZER
        imports = Import(
            store, Signer.generate(), QuotaEviction(store), CanonicalizerUpgrade(store, version), version
        )
        namespace = store.get_or_create_namespace("default")
        steps = imports.store(opened, namespace, Caller(), {})
        first = next(steps)
        steps.close()
        assert isinstance(first, list)
        assert {entry.outcome for entry in first} == {NEW}
        assert store.stats(namespace).kernels == 0
        assert run(store, bundle).new == COUNT


def test_specs_of_another_canonicalizer_are_rejected_and_nothing_is_stored(bundle: Path) -> None:
    with open_store("memory:") as store:
        done = run(store, bundle, canonicalizer=many.CANONICALIZER + 1)
        assert (done.new, done.present, done.rejected) == (0, 0, 3 * COUNT)
        assert store.count_specs(store.get_or_create_namespace("default")) == 0


@pytest.mark.parametrize(
    "fields",
    [{}, {"everything": True, "keys": (1,)}, {"kernels": (b"short",)}, {"filter": "nonsense"}],
)
def test_selections_that_mean_nothing_are_errors(fields: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Selection(**fields)  # pyright: ignore[reportArgumentType]
