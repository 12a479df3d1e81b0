"""Namespaces, specs, keys, mappings: the same on every store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_grpc.storage.errors import (
    Conflict,
    DigestMismatch,
    InvalidValue,
    MissingReference,
    SignerMismatch,
)
from kcache_grpc.storage.records import AuditEvent, Namespace, SignedBytes
from tests.storage.conftest import STORES
from tests.storage.drafts import blob, graph, mapping, program, sha256, spec

pytestmark = pytest.mark.parametrize("store", [*STORES, "sqlite+file", "sqlite+s3"], indirect=True)


class TestLostConstants:
    def test_a_mapping_is_not_found_while_one_of_its_constants_is_lost(self, store, ns):
        lost, plain = graph(1, [b"weights", b"bias"]), graph(2)
        first = store.put_graph(ns, lost)
        store.put_graph(ns, plain)
        digests = [lost.program_digest, plain.program_digest]
        assert set(store.find_mappings(ns, digests, "default")) == set(digests)
        store.quarantine_artifact(ns, sha256(b"bias"), "for a test")
        assert store.find_mapping(ns, lost.program_digest, "default") is None
        assert set(store.find_mappings(ns, digests, "default")) == {plain.program_digest}
        again = store.put_graph(ns, lost, AuditEvent("store"))
        assert (again.mapping, again.new_spec, again.new_mapping) == (first.mapping, False, False)
        assert store.find_mapping(ns, lost.program_digest, "default") == first.mapping
        assert store.read_artifact(ns, sha256(b"bias")) == b"bias"

    def test_an_older_whole_copy_is_enough(self, store, ns):
        draft = graph(1, [b"weights"])
        stored = store.put_graph(ns, draft)
        for _ in range(2):
            store.quarantine_artifact(ns, sha256(b"weights"), "for a test")
            store.put_constants(ns, [blob(b"weights")])
        assert store.find_mapping(ns, draft.program_digest, "default") == stored.mapping

    def test_putting_the_mapping_alone_gives_the_stored_one(self, store, ns):
        store.put_graph(ns, graph(1, [b"weights"]))
        store.quarantine_artifact(ns, sha256(b"weights"), "for a test")
        assert store.put_mapping(ns, mapping(1, 1, [sha256(b"weights")])).key == 1


class TestNamespaces:
    def test_one_name_is_one_namespace(self, store):
        first = store.get_or_create_namespace("default")
        assert first == store.get_or_create_namespace("default") == store.find_namespace("default")
        assert (first.name, first.epoch) == ("default", 1)
        other = store.get_or_create_namespace("other")
        assert store.list_namespaces() == (first, other)
        assert store.find_namespace("third") is None

    @pytest.mark.parametrize("name", ["'; DROP TABLE specs; --", "ünï 名前", "a" * 200, "%s {} $1 ?"])
    def test_any_printable_name_is_a_name(self, store, name):
        assert store.get_or_create_namespace(name).name == name
        assert store.find_namespace(name) is not None

    @pytest.mark.parametrize("name", ["", "a" * 201, "a\nb", "a\0b", "\ud800"])
    def test_other_names_are_rejected(self, store, name):
        with pytest.raises(InvalidValue):
            store.get_or_create_namespace(name)

    def test_an_epoch_disowns_mappings_but_no_specs(self, store, ns):
        store.put_graph(ns, graph(1))
        raised = store.raise_epoch(ns)
        assert raised == replace(ns, epoch=2) == store.get_or_create_namespace(ns.name)
        assert store.find_mapping(raised, program(1), "default") is None
        assert store.find_mapping(ns, program(1), "default") is not None
        assert store.get_spec(raised, 1) is not None
        again = store.put_graph(raised, graph(1))
        assert (again.new_spec, again.new_mapping, again.spec.key) == (False, True, 1)

    def test_an_epoch_is_raised_once_for_equal_requests(self, store, ns):
        assert store.raise_epoch(ns) == store.raise_epoch(ns) == replace(ns, epoch=2)

    @pytest.mark.issue(number=20, point=7)
    def test_a_namespace_allows_lower_targets_where_it_was_told_to(self, store, ns):
        other = store.get_or_create_namespace("other")
        assert not store.allows_compatible_targets(ns)
        assert store.set_compatible_targets(ns, False) is False
        assert store.set_compatible_targets(ns, True) is True
        assert store.set_compatible_targets(ns, True) is False
        assert (store.allows_compatible_targets(ns), store.allows_compatible_targets(other)) == (True, False)
        raised = store.raise_epoch(ns)
        assert store.allows_compatible_targets(raised)
        assert store.set_compatible_targets(raised, False) is True
        assert not store.allows_compatible_targets(ns)
        with pytest.raises(MissingReference):
            store.set_compatible_targets(Namespace(99, "nowhere", 1), True)

    def test_the_epoch_of_nothing_cannot_be_raised(self, store):
        with pytest.raises(MissingReference):
            store.raise_epoch(Namespace(99, "nowhere", 1))

    def test_a_store_has_one_signer_until_another_disowns_it(self, store, ns):
        store.put_graph(ns, graph(1))
        store.claim_signer(b"signer 1")
        store.claim_signer(b"signer 1", disown=True)
        with pytest.raises(SignerMismatch, match=b"signer 1".hex()):
            store.claim_signer(b"signer 2")
        assert store.find_namespace(ns.name) == ns
        store.claim_signer(b"signer 2", disown=True)
        assert store.find_namespace(ns.name) == replace(ns, epoch=2)
        store.claim_signer(b"signer 2")
        with pytest.raises(SignerMismatch):
            store.claim_signer(b"signer 1")
        with pytest.raises(InvalidValue):
            store.claim_signer(b"short")


class TestSpecs:
    def test_keys_count_from_one(self, store, ns):
        assert [store.put_spec(ns, spec(number)).key for number in range(5)] == [1, 2, 3, 4, 5]
        assert store.count_specs(ns) == 5

    def test_a_known_spec_keeps_its_key_and_the_counter(self, store, ns):
        first = store.put_spec(ns, spec(0))
        assert store.put_spec(ns, spec(0)) == first
        assert store.put_spec(ns, spec(1)).key == 2

    def test_what_was_put_is_found_by_key_and_digest(self, store, ns, time):
        draft = spec(7)
        put = store.put_spec(ns, draft)
        assert store.get_spec(ns, put.key) == store.find_spec(ns, draft.spec_digest) == put
        assert (put.text, put.numerics, put.canonicalizer, put.family) == (
            draft.text,
            "default",
            1,
            "stablehlo",
        )
        assert put.created_at == time.wall

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("key", [0, -1, 2, 2**63 - 1, 2**63, 2**100])
    def test_an_unknown_key_is_no_spec(self, store, ns, key):
        store.put_spec(ns, spec(0))
        assert store.get_spec(ns, key) is None
        assert store.resolve_key(ns, key) == key

    def test_namespaces_count_for_themselves(self, store, ns):
        other = store.get_or_create_namespace("other")
        store.put_spec(ns, spec(0))
        assert store.find_spec(other, spec(0).spec_digest) is None
        assert store.put_spec(other, spec(1)).key == 1
        assert (store.count_specs(ns), store.count_specs(other)) == (1, 1)

    def test_a_text_under_a_wrong_digest_is_rejected(self, store, ns):
        with pytest.raises(DigestMismatch):
            store.put_spec(ns, replace(spec(0), spec_digest=sha256("else")))
        assert store.count_specs(ns) == 0

    @pytest.mark.parametrize("text", ["a\0b", "\ud800"])
    def test_text_that_no_database_keeps_is_rejected(self, store, ns, text):
        digest = sha256(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(InvalidValue):
            store.put_spec(ns, replace(spec(0), text=text, spec_digest=digest))

    def test_any_other_text_comes_back_as_it_was(self, store, ns):
        text = '\'; DROP TABLE specs; -- "%s" :x ? \\ \r\n\t ünï 名前 \U0001f600'
        put = store.put_spec(ns, replace(spec(0), text=text, spec_digest=sha256(text)))
        assert store.get_spec(ns, put.key).text == text

    def test_a_spec_of_megabytes(self, store, ns):
        text = "%0 = add\n" * 500_000
        put = store.put_spec(ns, replace(spec(0), text=text, spec_digest=sha256(text)))
        assert store.get_spec(ns, put.key).text == text

    @pytest.mark.parametrize("digest", [b"", b"x" * 31, b"x" * 33])
    def test_names_have_the_size_of_a_digest(self, store, ns, digest):
        with pytest.raises(InvalidValue):
            store.find_spec(ns, digest)
        with pytest.raises(InvalidValue):
            store.find_mapping(ns, digest, "default")

    def test_a_namespace_that_is_not_stored_takes_no_specs(self, store):
        with pytest.raises(MissingReference):
            store.put_spec(Namespace(99, "nowhere", 1), spec(0))


class TestMappings:
    def test_the_first_mapping_stays(self, store, ns):
        for number in range(2):
            store.put_spec(ns, spec(number))
        first = store.put_mapping(ns, mapping(0, key=1))
        assert store.put_mapping(ns, mapping(0, key=2)) == first
        assert store.find_mapping(ns, program(0), "default") == first
        assert (first.key, first.binding.payload, first.epoch) == (1, b"binding of 1", 1)

    def test_numerics_are_part_of_the_name(self, store, ns):
        store.put_spec(ns, spec(0))
        store.put_mapping(ns, mapping(0, key=1))
        assert store.find_mapping(ns, program(0), "strict") is None
        strict = store.put_mapping(ns, replace(mapping(0, key=1), numerics="strict"))
        assert store.find_mapping(ns, program(0), "strict") == strict

    def test_many_are_found_at_once(self, store, ns):
        store.put_spec(ns, spec(0))
        put = {program(number): store.put_mapping(ns, mapping(number, key=1)) for number in range(3)}
        wanted = [program(number) for number in range(1200)]
        assert dict(store.find_mappings(ns, wanted, "default")) == put
        assert dict(store.find_mappings(ns, [], "default")) == {}

    def test_a_key_must_be_there(self, store, ns):
        with pytest.raises(MissingReference):
            store.put_mapping(ns, mapping(0, key=1))

    def test_its_constants_must_be_there(self, store, ns):
        store.put_spec(ns, spec(0))
        weights = blob(b"weights")
        with pytest.raises(MissingReference):
            store.put_mapping(ns, mapping(0, 1, [weights.digest]))
        store.put_constants(ns, [weights])
        assert store.put_mapping(ns, mapping(0, 1, [weights.digest, weights.digest])).key == 1


class TestGraphs:
    def test_one_call_stores_spec_mapping_and_constants(self, store, ns):
        stored = store.put_graph(ns, graph(1, [b"weights", b"bias"]), AuditEvent("store"))
        assert (stored.new_spec, stored.new_mapping) == (True, True)
        assert stored.mapping.binding == SignedBytes(b"binding of 1", b"signature of it")
        assert store.find_mapping(ns, program(1), "default") == stored.mapping
        assert store.read_artifact(ns, sha256(b"bias")) == b"bias"
        (record,) = store.list_audit(ns)
        assert (record.event.kind, record.event.key) == ("store", 1)

    def test_a_repeat_changes_nothing_and_says_nothing(self, store, ns):
        first = store.put_graph(ns, graph(1), AuditEvent("store"))
        again = store.put_graph(ns, graph(1), AuditEvent("store"))
        assert again == replace(first, new_spec=False, new_mapping=False)
        assert len(store.list_audit(ns)) == 1

    def test_another_program_of_the_same_spec_gets_its_key(self, store, ns):
        store.put_graph(ns, graph(1))
        renamed = store.put_graph(ns, replace(graph(1), program_digest=program(2)))
        assert (renamed.spec.key, renamed.new_spec, renamed.new_mapping) == (1, False, True)

    def test_a_binding_that_fails_leaves_nothing(self, store, ns):
        def fail(key: int) -> SignedBytes:
            raise RuntimeError(f"no signature for {key}")

        with pytest.raises(RuntimeError, match="no signature for 1"):
            store.put_graph(ns, replace(graph(1, [b"weights"]), bind=fail))
        assert store.count_specs(ns) == 0
        assert store.artifact_size(ns, sha256(b"weights")) is None
        assert store.put_graph(ns, graph(2)).spec.key == 1

    def test_a_constant_under_a_wrong_digest_is_rejected(self, store, ns):
        bad = replace(graph(1), constants=(replace(blob(b"weights"), digest=sha256("else")),))
        with pytest.raises(DigestMismatch):
            store.put_graph(ns, bad)
        assert store.count_specs(ns) == 0


class TestAliases:
    @pytest.fixture(autouse=True)
    def _three_specs(self, store, ns):
        for number in range(3):
            store.put_spec(ns, spec(number))

    def test_an_alias_stands_for_the_lower_key(self, store, ns):
        assert store.resolve_key(ns, 3) == 3
        assert store.add_alias(ns, 3, 2) == 2
        assert store.add_alias(ns, 2, 1) == 1
        assert [store.resolve_key(ns, key) for key in (1, 2, 3)] == [1, 1, 1]
        assert [store.list_aliases(ns, key) for key in (1, 2, 3, 0, 2**70)] == [(2, 3), (3,), (), (), ()]
        assert store.get_spec(ns, 3) is not None

    def test_an_alias_stands_for_one_key_for_good(self, store, ns):
        store.add_alias(ns, 3, 2)
        assert store.add_alias(ns, 3, 2) == 2
        with pytest.raises(Conflict):
            store.add_alias(ns, 3, 1)
        assert store.resolve_key(ns, 3) == 2
        (conflict,) = store.list_conflicts(ns)
        numbers = [int.from_bytes(part, "big") for part in (conflict.name, conflict.stored, conflict.offered)]
        assert (conflict.kind, numbers) == ("alias", [3, 2, 1])

    @pytest.mark.parametrize(("alias", "key"), [(1, 2), (1, 1), (0, 1), (2, 0)])
    def test_an_alias_points_down(self, store, ns, alias, key):
        with pytest.raises(InvalidValue):
            store.add_alias(ns, alias, key)

    def test_both_keys_must_be_there(self, store, ns):
        with pytest.raises(MissingReference):
            store.add_alias(ns, 4, 1)
