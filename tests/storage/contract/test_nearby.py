"""Reads for explanations: mappings of a key, specs of a size, kernels near another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_grpc.storage.contract.nearby import WEIGHTS, CompileTime, SpecSize
from kcache_grpc.storage.errors import InvalidValue
from kcache_grpc.storage.records import KernelDraft, SpecDraft
from tests.storage.drafts import graph, kernel, mapping, program, sha256, spec


def sized(size: int, number: int) -> SpecDraft:
    """A text of so many bytes, of which a letter has two."""
    text = f"ü{number:03}".ljust(size - 1, "x")
    return SpecDraft(sha256(text), text, "default", canonicalizer=1)


class TestMappings:
    def test_the_mappings_of_a_key_come_oldest_first(self, store, ns, time):
        store.put_graph(ns, graph(0))
        for number in (7, 5, 6):
            time.advance(1)
            store.put_mapping(ns, mapping(number, key=1))
        store.put_graph(ns, graph(1))
        mappings = store.list_mappings(ns, 1)
        assert [record.program_digest for record in mappings] == [program(number) for number in (0, 7, 5, 6)]
        assert mappings[1] == store.find_mapping(ns, program(7), "default")
        assert store.list_mappings(ns, 1, limit=2) == mappings[:2]
        assert store.list_mappings(ns, 1, limit=0) == store.list_mappings(ns, 9) == ()

    def test_those_of_an_epoch_and_namespace_only(self, store, ns):
        store.put_graph(ns, graph(0))
        other = store.get_or_create_namespace("other")
        store.put_graph(other, graph(0))
        raised = store.raise_epoch(ns)
        assert store.list_mappings(raised, 1) == ()
        store.put_graph(raised, graph(0))
        assert [len(store.list_mappings(each, 1)) for each in (ns, raised, other)] == [1, 1, 1]

    @pytest.mark.parametrize(("key", "limit"), [(-1, 1), (1, -1), (2**63, 1)])
    def test_numbers_are_checked(self, store, ns, key, limit):
        with pytest.raises(InvalidValue):
            store.list_mappings(ns, key, limit)


class TestSpecSizes:
    def test_the_nearest_in_size_come_first_and_of_equals_the_youngest(self, store, ns):
        sizes = [10, 20, 20, 30, 40, 16, 24]
        for number, size in enumerate(sizes):
            store.put_spec(ns, sized(size, number))
        specs = store.list_spec_sizes(ns, 20, limit=5)
        assert specs == tuple(SpecSize(key, sizes[key - 1]) for key in (3, 2, 7, 6, 4))
        assert [each.key for each in store.list_spec_sizes(ns, 0, limit=2)] == [1, 6]
        assert [each.key for each in store.list_spec_sizes(ns, 2**62, limit=9)][:2] == [5, 4]
        assert len(store.list_spec_sizes(ns, 20, limit=100)) == len(sizes)
        assert store.list_spec_sizes(ns, 20, limit=0) == ()

    def test_of_a_namespace_in_all_epochs(self, store, ns):
        store.put_spec(ns, spec(0))
        other = store.get_or_create_namespace("other")
        raised = store.raise_epoch(ns)
        assert [each.key for each in store.list_spec_sizes(raised, 1, limit=9)] == [1]
        assert store.list_spec_sizes(other, 1, limit=9) == ()
        with pytest.raises(InvalidValue):
            store.list_spec_sizes(ns, -1, limit=9)


def variant(number: int, **changes: object) -> KernelDraft:
    draft = kernel(number)
    return replace(draft, kernel=replace(draft.kernel, **changes))


class TestNearKernels:
    WANTED = kernel(0).kernel

    @pytest.fixture(autouse=True)
    def _spec(self, store, ns):
        store.put_spec(ns, spec(0))
        store.put_spec(ns, spec(1))

    def test_each_ingredient_has_its_weight(self, store, ns):
        changes = {
            "guard": {"guard": "s0 % 8 == 0"},
            "arg_spec": {"arg_spec": "f32[9]"},
            "options": {"options": "numerics=fast"},
            "toolchain": {"toolchain": sha256("another")},
            "target": {"target": "aarch64"},
        }
        for number, change in enumerate(reversed(changes.values()), start=1):
            store.publish_kernel(ns, variant(number, **change))
        store.publish_kernel(ns, variant(6, options="numerics=fast", target="aarch64"))
        kernels = store.list_near_kernels(ns, self.WANTED, limit=10)
        expected = [WEIGHTS[name] for name in changes]
        assert [each.distance for each in kernels] == sorted([*expected, 20])
        assert [each.kernel.kernel_digest for each in kernels][:2] == [sha256("kernel 5"), sha256("kernel 4")]
        assert store.list_near_kernels(ns, self.WANTED, limit=2) == kernels[:2]

    def test_weights_are_such_that_no_sum_hides_a_heavier_difference(self):
        weights = list(WEIGHTS.values())
        assert all(sum(weights[:index]) < weight for index, weight in enumerate(weights))

    def test_everything_of_the_kernel_is_told(self, store, ns, time):
        store.publish_kernel(ns, kernel(1))
        (near,) = store.list_near_kernels(ns, self.WANTED, limit=10)
        stored = store.find_kernel(ns, kernel(1).kernel.kernel_digest)
        assert (near.kernel, near.ingredients) == (kernel(1).kernel, kernel(1).ingredients)
        assert (near.id, near.epoch, near.created_at) == (stored.id, 1, time.wall)
        assert near.distance == 0

    def test_of_equals_the_youngest_comes_first(self, store, ns):
        for number in (1, 2, 3):
            store.publish_kernel(ns, kernel(number))
        kernels = store.list_near_kernels(ns, self.WANTED, limit=2)
        assert [each.kernel.kernel_digest for each in kernels] == [sha256("kernel 3"), sha256("kernel 2")]

    def test_earlier_epochs_are_seen_and_far(self, store, ns):
        store.publish_kernel(ns, kernel(1))
        raised = store.raise_epoch(ns)
        (near,) = store.list_near_kernels(raised, self.WANTED, limit=10)
        assert (near.epoch, near.distance) == (1, WEIGHTS["epoch"])

    def test_other_keys_and_namespaces_are_not_seen(self, store, ns):
        store.publish_kernel(ns, kernel(1, key=2))
        other = store.get_or_create_namespace("other")
        store.put_spec(other, spec(0))
        store.publish_kernel(other, kernel(1))
        assert store.list_near_kernels(ns, self.WANTED, limit=10) == ()
        assert store.list_near_kernels(ns, replace(self.WANTED, key=9), limit=10) == ()

    def test_a_kernel_that_lost_its_bytes_is_still_told_of(self, store, ns):
        store.publish_kernel(ns, kernel(1))
        assert store.quarantine_artifact(ns, sha256("object 1"), "test")
        assert store.find_kernel(ns, kernel(1).kernel.kernel_digest) is None
        assert len(store.list_near_kernels(ns, self.WANTED, limit=10)) == 1

    def test_what_cannot_be_asked_for(self, store, ns):
        for wanted in (replace(self.WANTED, toolchain=b"short"), replace(self.WANTED, guard="a\0b")):
            with pytest.raises(InvalidValue):
                store.list_near_kernels(ns, wanted, limit=10)
        with pytest.raises(InvalidValue):
            store.list_near_kernels(ns, self.WANTED, limit=-1)


@pytest.mark.issue(number=20, point=6)
class TestCompileTimes:
    @pytest.fixture(autouse=True)
    def _spec(self, store, ns):
        store.put_spec(ns, spec(0))
        store.put_spec(ns, spec(1))

    def test_those_of_a_target_in_this_epoch_or_all_of_a_key(self, store, ns):
        store.publish_kernel(ns, kernel(1))
        store.publish_kernel(ns, variant(2, target="aarch64"))
        store.publish_kernel(ns, kernel(3, key=2))
        here = store.list_compile_times(ns, 1, "x86-64-v3", 9)
        assert here == (CompileTime("x86-64-v3", "numerics=default", sha256("toolchain"), 1501),)
        assert {each.compile_us for each in store.list_compile_times(ns, 1, None, 9)} == {1501, 1502}
        raised = store.raise_epoch(ns)
        assert store.list_compile_times(raised, 1, "x86-64-v3", 9) == ()
        assert len(store.list_compile_times(raised, 1, None, 9)) == 2

    def test_no_more_than_the_limit_and_none_of_other_namespaces(self, store, ns):
        for number in range(5):
            store.publish_kernel(ns, kernel(number))
        other = store.get_or_create_namespace("other")
        assert [len(store.list_compile_times(ns, 1, None, most)) for most in (0, 3, 9)] == [0, 3, 5]
        assert store.list_compile_times(other, 1, None, 9) == store.list_compile_times(ns, 7, None, 9) == ()
        with pytest.raises(InvalidValue):
            store.list_compile_times(ns, 1, None, -1)
        with pytest.raises(InvalidValue):
            store.list_compile_times(ns, 1, "a\0b", 9)

    def test_operations_are_counted_by_key(self, store, ns):
        text = "kcache.spec v1\narg a0 f32[s0]\n" + "".join(f"%{n} = tanh a0[0]\n" for n in range(12))
        store.put_spec(ns, SpecDraft(sha256(text), text, "default", canonicalizer=1))
        assert store.count_operations(ns, [3, 1, 99]) == {1: 1, 3: 12}
        assert store.count_operations(ns, []) == {}
        with pytest.raises(InvalidValue):
            store.count_operations(ns, [-1])
