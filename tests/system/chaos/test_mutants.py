"""Servers that break a promise are found out; those that keep them all are not."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.system.chaos.cluster import Setup
from tests.system.chaos.faults.nemesis import run
from tests.system.chaos.mutants import MUTANTS

#: What the report says of each.
FOUND = {
    "loses": r"was lost|was given to|is not there|as 2 values",
    "duplicates": r"was given to|as 2 values",
    "overwrites": r"'text'.* was told as 2 values",
    "recompiles": r"'kernel'.* was told as",
    "corrupts": r"do not hash to their digest",
    "stalls": r"look up .* had no answer: StatusCode.DEADLINE_EXCEEDED",
    "counts_twice": r"Count.* is outside of|the count fell",
}


def report(folder, setup):
    return asyncio.run(run(folder, 1, 300, setup))


@pytest.mark.long
def test_servers_that_keep_their_promises_pass(tmp_path):
    verdict = report(tmp_path, Setup("sqlite", faults=False, servers=2))
    assert verdict.good(300), str(verdict)


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant, tmp_path):
    setup = Setup("sqlite", faults=False, servers=2, module=("tests.system.chaos.mutants", mutant))
    problems = report(tmp_path, setup).problems
    assert any(re.search(FOUND[mutant], problem) for problem in problems), problems
