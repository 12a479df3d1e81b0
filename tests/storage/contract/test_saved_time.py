"""Compile time that hits saved, by caller."""

from __future__ import annotations

import pytest

from kcache_grpc.storage.contract.saved_time import SavingRecord, caller_of, caller_usage
from kcache_grpc.storage.errors import InvalidValue
from kcache_grpc.storage.records import UsageDelta
from tests.storage.drafts import program

pytestmark = pytest.mark.issue(number=20, point=6)

#: What callers may say of themselves: nothing, other alphabets, wildcards and quotes of SQL, separators.
CALLERS = [("", ""), ("ada", "job 7"), ("ada", ""), ("Ünal", "%_'\""), ("a\\b", '["x", "y"]'), ("~", "\t")]


def test_sums_are_kept_by_actor_and_job(store, ns):
    for number, caller in enumerate(CALLERS):
        store.add_usage(ns, [caller_usage(*caller, 1, number, 5), caller_usage(*caller, 2, number, 4)])
    for _ in range(2):
        store.add_usage(ns, [caller_usage("ada", "job 7", 1, 100, 9)])
    savings = store.list_savings(ns, 100)
    assert savings[0] == SavingRecord("ada", "job 7", 5, 202, 9)
    assert {(each.actor, each.job): (each.hits, each.saved_us) for each in savings[1:]} == {
        caller: (3, 2 * number) for number, caller in enumerate(CALLERS) if caller != ("ada", "job 7")
    }
    assert [each.saved_us for each in savings] == sorted((each.saved_us for each in savings), reverse=True)
    assert store.list_savings(ns, 2) == savings[:2]


def test_neither_other_subjects_nor_other_namespaces(store, ns):
    other = store.get_or_create_namespace("other")
    for subject in ("a", "caller", "kernel", "mapping", "removed-kernel", "zz"):
        store.add_usage(ns, [UsageDelta(subject, program(number), 1, 10, 5) for number in range(3)])
    assert store.list_savings(ns, 9) == ()
    store.add_usage(ns, [caller_usage("ada", "", 1, 7, 5)])
    assert store.list_savings(ns, 9) == (SavingRecord("ada", "", 1, 7, 5),)
    assert store.list_savings(other, 9) == ()
    with pytest.raises(InvalidValue):
        store.list_savings(ns, -1)


@pytest.mark.parametrize("caller", CALLERS)
def test_a_subject_names_its_caller(caller):
    actor, job = caller
    assert caller_of(caller_usage(actor, job, 1, 1, 1).subject) == caller
