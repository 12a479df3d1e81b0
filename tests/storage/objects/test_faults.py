"""An object store over HTTP that rejects, breaks off, lies or waits: typed errors, nothing half-written."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

from kcache_grpc.storage import CHUNK_BYTES, Store, open_store
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.objects.placing import PUBLISH_WITHIN
from kcache_grpc.storage.records import AuditEvent, Namespace
from tests.s3 import Fault, FaultyLine, S3Server
from tests.storage.drafts import Time, blob, graph, kernel, sha256, spec
from tests.storage.inside import assert_sound, contents, path_of, rows

BIG = random.Random(5).randbytes(2 * CHUNK_BYTES + 100)
FAULTS = (Fault.REFUSE, Fault.BUSY)
WRITES: dict[str, Callable[[Store, Namespace], object]] = {
    "publish": lambda store, ns: store.publish_kernel(ns, kernel(1, so=BIG), event=AuditEvent("publish")),
    "graph": lambda store, ns: store.put_graph(ns, graph(3, [BIG]), AuditEvent("store")),
    "constants": lambda store, ns: store.put_constants(ns, [blob(b"small"), blob(BIG)]),
    "program": lambda store, ns: store.put_program(ns, sha256("program"), "stablehlo", BIG),
}


@pytest.fixture
def line(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyLine]:
    with closing(FaultyLine(s3_server)) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.endpoint)
        yield line


@pytest.fixture
def url(line: FaultyLine) -> str:
    return f"s3://{line.upstream.bucket()}/some/prefix"


@pytest.fixture
def store(line: FaultyLine, url: str, template: Path, tmp_path: Path, time: Time) -> Iterator[Store]:
    shutil.copy(template, tmp_path / "store.sqlite")
    with open_store(f"sqlite:///{tmp_path}/store.sqlite", clock=time.clock, objects=url) as opened:
        yield opened


@pytest.fixture
def ns(store: Store) -> Namespace:
    namespace = store.get_or_create_namespace("default")
    store.put_spec(namespace, spec(0))
    return namespace


@pytest.mark.sampled(9)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_store_that_rejects_is_an_error_that_leaves_nothing(store, ns, line, name, fault):
    before = contents(path_of(store))
    line.fail(fault)
    with pytest.raises(StoreUnavailable, match="could not put objects/"):
        WRITES[name](store, ns)
    assert contents(path_of(store)) == before
    line.heal()
    WRITES[name](store, ns)
    assert store.read_artifact(ns, sha256(BIG)) == BIG
    assert_sound(path_of(store))


@pytest.mark.parametrize("fault", [*FAULTS, Fault.CUT])
def test_reads_fail_while_it_rejects_and_nothing_is_given_up(store, ns, line, fault):
    store.publish_kernel(ns, kernel(1, so=BIG))
    line.fail(fault)
    for call in (store.read_artifact, store.verify_artifact):
        with pytest.raises(StoreUnavailable, match="could not read"):
            call(ns, sha256(BIG))
    with pytest.raises(StoreUnavailable):
        store.read_artifact(ns, sha256(BIG), CHUNK_BYTES + 1, 10)
    line.heal()
    assert store.read_artifact(ns, sha256(BIG)) == BIG
    assert rows(path_of(store), "SELECT * FROM quarantine") == []


@pytest.mark.parametrize("fault", [*FAULTS, Fault.CUT, Fault.SHORT, Fault.FLIP])
def test_one_failure_is_tried_again(store, ns, line, fault):
    """By the library, or by us where the library takes what came for an answer."""
    if fault in FAULTS:
        line.fail(fault, times=1)
    store.publish_kernel(ns, kernel(1, so=BIG))
    line.fail(fault, times=1)
    assert store.read_artifact(ns, sha256(BIG)) == BIG
    assert line.left == 0
    assert rows(path_of(store), "SELECT * FROM quarantine") == []


def test_wrong_bytes_are_given_up_and_never_served(store, ns, line):
    store.publish_kernel(ns, kernel(1, so=BIG))
    line.fail(Fault.FLIP)
    assert store.read_artifact(ns, sha256(BIG)) is None
    line.heal()
    assert store.find_kernel(ns, kernel(1).kernel.kernel_digest) is None
    assert store.publish_kernel(ns, kernel(1, so=BIG)).repaired == 1
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_answers_that_are_too_short_are_not_a_loss(store, ns, line):
    """The object is as long as it was: it is the line that is wrong."""
    store.publish_kernel(ns, kernel(1, so=BIG))
    line.fail(Fault.SHORT)
    with pytest.raises(StoreUnavailable):
        store.read_artifact(ns, sha256(BIG))
    line.heal()
    assert store.read_artifact(ns, sha256(BIG)) == BIG


@pytest.mark.parametrize("name", sorted(WRITES))
def test_an_object_that_arrived_truncated_gets_no_row(store, ns, line, name):
    before = contents(path_of(store))
    line.fail(Fault.KEEP)
    with pytest.raises(StoreUnavailable, match=r"has \d+ bytes"):
        WRITES[name](store, ns)
    assert contents(path_of(store)) == before
    line.heal()
    WRITES[name](store, ns)
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_a_range_is_all_that_is_asked_for(store, ns, line):
    store.publish_kernel(ns, kernel(1, so=BIG))
    line.passed.clear()
    assert (
        store.read_artifact(ns, sha256(BIG), CHUNK_BYTES + 7, 11) == BIG[CHUNK_BYTES + 7 : CHUNK_BYTES + 18]
    )
    (request,) = line.passed
    assert request.range == f"bytes={CHUNK_BYTES}-{2 * CHUNK_BYTES - 1}"
    assert request.answered == CHUNK_BYTES


def test_nobody_waits_for_the_database_while_the_object_store_is_slow(store, ns, line):
    line.fail(Fault.HOLD)
    publisher = threading.Thread(target=store.publish_kernel, args=(ns, kernel(1, so=BIG)))
    publisher.start()
    assert line.held.acquire(timeout=120)
    # The transaction of another writer passes, and so does every lookup.
    store.put_spec(ns, spec(9))
    assert store.find_kernel(ns, kernel(1).kernel.kernel_digest) is None
    assert publisher.is_alive()
    line.heal()
    publisher.join(120)
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_a_publisher_that_was_held_up_for_long_puts_its_object_again(store, ns, line, time):
    """A sweep may have deleted what it put: a row for it would outlive its bytes."""
    line.fail(Fault.HOLD, times=1)
    publisher = threading.Thread(target=store.publish_kernel, args=(ns, kernel(1, so=BIG)))
    publisher.start()
    assert line.held.acquire(timeout=120)
    time.advance(PUBLISH_WITHIN / 1e6)
    line.heal()
    publisher.join(120)
    paths = [request.path.partition("?")[0] for request in line.passed if request.method == "PUT"]
    puts = [path for path in paths if "/objects/" in path]
    ((location,),) = rows(path_of(store), "SELECT DISTINCT location FROM artifact_chunks WHERE size > 100")
    assert len(set(puts)) == 2
    assert puts[-1].endswith(location)
    assert not puts[0].endswith(location)
    assert store.read_artifact(ns, sha256(BIG)) == BIG


def test_a_bucket_that_is_not_there_is_told_at_the_start(line, template, tmp_path):
    shutil.copy(template, tmp_path / "store.sqlite")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        open_store(f"sqlite:///{tmp_path}/store.sqlite", objects="s3://no-such-bucket/x")


def test_a_bucket_that_was_emptied_is_no_reason_to_give_up_all_objects(store, ns, line, url):
    import obstore
    from obstore.store import S3Store

    store.publish_kernel(ns, kernel(1, so=BIG))
    backend = S3Store.from_url(url, client_options={"allow_http": True})
    marker = bytes(obstore.get(backend, "kcache-store.json").bytes())
    obstore.delete(backend, "kcache-store.json")
    (name,) = [each["path"] for page in obstore.list(backend, "objects") for each in page]
    obstore.delete(backend, name)
    with pytest.raises(StoreUnavailable, match="gone"):
        store.read_artifact(ns, sha256(BIG))
    obstore.put(backend, "kcache-store.json", marker)
    assert store.read_artifact(ns, sha256(BIG)) is None


def _fails(call: Callable[[], object]) -> None:
    with pytest.raises(StoreUnavailable):
        call()


@pytest.mark.long
def test_a_store_that_never_answers_costs_one_caller_its_time(store, ns, line):
    store.publish_kernel(ns, kernel(1, so=BIG))
    line.fail(Fault.HOLD)
    began = monotonic()
    with pytest.raises(StoreUnavailable):
        store.read_artifact(ns, sha256(BIG))
    assert monotonic() - began < 40
    # From now on one call waits, and the others do not.
    waiting = threading.Thread(target=_fails, args=(store.check,))
    line.fail(Fault.HOLD_ALL)
    while line.held.acquire(blocking=False):
        pass
    waiting.start()
    assert line.held.acquire(timeout=120)
    began = monotonic()
    with pytest.raises(StoreUnavailable, match="another call is trying"):
        store.read_artifact(ns, sha256(BIG))
    assert monotonic() - began < 1
    waiting.join(60)
    line.heal()
    assert store.read_artifact(ns, sha256(BIG)) == BIG
