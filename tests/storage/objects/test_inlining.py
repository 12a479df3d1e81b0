"""Leaving an object store: its bytes come back into rows, and the store opens without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import ObjectStoreMismatch
from kcache_grpc.storage.records import Inlined
from tests.storage.conftest import OBJECT_STORES
from tests.storage.drafts import graph, kernel, program, sha256
from tests.storage.objects.test_sweep import names, objects_of

BIG = bytes(range(256)) * 6000
ONE = sum(len(content) for content in (BIG, b"shared IR", b"weights", b"body"))


@pytest.fixture
def ns(store):
    namespace = store.get_or_create_namespace("default")
    store.put_graph(namespace, graph(0, [b"weights"]))
    store.publish_kernel(namespace, kernel(1, so=BIG))
    store.put_program(namespace, program(9), "torch", b"body")
    return namespace


@contextmanager
def without_objects(store: Store) -> Iterator[Store]:
    with open_store(store.url) as opened:
        yield opened


def collect(store: Store, ns) -> None:
    """As ``kcache gc --min-age 0s`` does."""
    store.collect(ns, Step(RowKind.QUARANTINED, before=2**62))


def assert_whole(store: Store, ns) -> None:
    assert store.read_artifact(ns, sha256(BIG)) == BIG
    assert store.read_artifact(ns, sha256(BIG), 1_100_000, 11) == BIG[1_100_000:1_100_011]
    assert store.read_artifact(ns, sha256(b"weights")) == b"weights"
    assert store.get_program(ns, program(9)) == ("torch", b"body")
    assert store.find_kernels(ns, [kernel(1).kernel.kernel_digest])
    assert store.find_mapping(ns, program(0), "default") is not None


@pytest.mark.parametrize("store", OBJECT_STORES, indirect=True)
def test_bytes_come_back_and_the_object_store_is_not_needed_any_more(store, ns):
    with pytest.raises(ObjectStoreMismatch), without_objects(store):
        pass
    assert store.inline_objects(ns, dry_run=True) == Inlined(4, ONE)
    assert store.inline_objects(ns) == Inlined(4, ONE)
    assert_whole(store, ns)
    assert store.inline_objects(ns) == Inlined()
    collect(store, ns)
    assert_whole(store, ns)
    with without_objects(store) as opened:
        assert_whole(opened, ns)
        assert opened.verify_artifact(ns, sha256(BIG))


@pytest.mark.parametrize("store", ["sqlite+file"], indirect=True)
def test_what_is_lost_there_is_told_and_made_again(store, ns):
    big = max((each for page in objects_of(store).pages() for each in page), key=lambda each: each.size)
    objects_of(store).delete(big.name)
    assert store.inline_objects(ns) == Inlined(3, ONE - len(BIG), lost=1)
    collect(store, ns)
    with without_objects(store) as opened:
        assert opened.read_artifact(ns, sha256(BIG)) is None
        opened.publish_kernel(ns, kernel(1, so=BIG))
        assert_whole(opened, ns)


@pytest.mark.parametrize("store", ["sqlite+file"], indirect=True)
def test_it_goes_on_where_it_was_broken_off(store, ns, monkeypatch):
    reads = iter(range(2))
    right = type(store).read_artifact

    def break_off(self, *args):
        next(reads)
        return right(self, *args)

    monkeypatch.setattr(type(store), "read_artifact", break_off)
    with pytest.raises(StopIteration):
        store.inline_objects(ns)
    monkeypatch.undo()
    assert store.inline_objects(ns).blobs == 2
    assert_whole(store, ns)
    assert len(names(store)) == 4


def test_a_store_without_objects_has_nothing_to_move(store, ns):
    assert store.inline_objects(ns) == Inlined()
