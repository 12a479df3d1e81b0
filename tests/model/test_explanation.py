"""Explanations and their form on the wire."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from kcache_grpc._proto.kcache.v1 import explain_pb2
from kcache_grpc.model.explanation import (
    HITS,
    Difference,
    Explanation,
    FailedBefore,
    MappingOfSpec,
    Neighbor,
    at,
    explanation_from_proto,
    explanation_to_proto,
)

WHEN = datetime(2026, 1, 31, 12, 30, 15, 123456, timezone.utc)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 250000, timezone.utc)
EVERYTHING = Explanation(
    step="FAILED",
    summary="its compile failed once",
    program_digest=b"p" * 32,
    program_known=True,
    key=7,
    spec_digest=b"s" * 32,
    kernel_digest=b"k" * 32,
    arg_spec="f32[s0]",
    guard="s0 % 8 == 0",
    mappings=(MappingOfSpec(b"p" * 32, WHEN, True), MappingOfSpec(b"q" * 32, BEFORE_1970, False)),
    failure=FailedBefore("COMPILE_FAILED", "lower", "no", 3, WHEN, WHEN),
    nearest=(
        Neighbor(7, b"s" * 32, b"n" * 32, WHEN, 8, (Difference("target", "a", "b", "compiled for b"),)),
        Neighbor(8, b"t" * 32, b"", WHEN, 100, ()),
    ),
)


def test_all_of_it_survives_the_wire():
    message = explanation_to_proto(EVERYTHING)
    sent = explain_pb2.ExplainResponse.FromString(message.SerializeToString())
    assert explanation_from_proto(sent) == EVERYTHING
    bare = replace(EVERYTHING, failure=None, mappings=(), nearest=())
    assert explanation_from_proto(explanation_to_proto(bare)) == bare


def test_every_step_has_a_number_and_hits_come_first():
    steps = [name.removeprefix("EXPLAIN_STEP_") for name in explain_pb2.ExplainStep.keys()[1:]]
    for step in steps:
        explanation = replace(EVERYTHING, step=step)
        assert explanation_from_proto(explanation_to_proto(explanation)) == explanation
        assert explanation.hit is (step in HITS)
    assert tuple(steps[: len(HITS)]) == HITS


def test_a_step_of_a_later_version_is_a_miss_with_a_number():
    message = explanation_to_proto(EVERYTHING)
    message.step = 99  # pyright: ignore[reportAttributeAccessIssue]
    explanation = explanation_from_proto(message)
    assert (explanation.step, explanation.hit) == ("99", False)


def test_people_read_all_of_it():
    text = str(EVERYTHING)
    assert text.splitlines()[0] == "miss: its compile failed once"
    assert f"program {'70' * 8} leads to key 7 since 2026-01-31 12:30:15 UTC (yours)" in text
    assert f"1. key 7, kernel {'6e' * 8}, of 2026-01-31 12:30:15 UTC, distance 8" in text
    assert "     compiled for b" in text
    assert "2. key 8, no kernel" in text


def test_microseconds_are_times():
    assert at(1_769_862_615_123_456) == WHEN
