"""Launches of GPU kernels: two evaluators agree, and nothing that makes no sense gets through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.gpu.launch import (
    GpuCall,
    GpuLaunchSpec,
    GpuResources,
    Param,
    TooLarge,
    calls,
    require_checks,
    require_valid,
)
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.sizes.expression import FormulaOverflow, evaluate, holds
from tests.model.gpu import formulas_in_c as in_c

NAMES = ("s0", "s1", "d2")
VALUES = st.one_of(st.integers(0, 5000), st.sampled_from([0, 1, 2**31, 2**62, 2**63 - 1, -1, -7, -(2**63)]))
SIZES = st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES))
_LEAF = st.one_of(
    st.integers(0, 2**63 - 1).map(str),
    st.integers(0, 300).map(str),
    st.sampled_from([*NAMES, "unknown", "99999999999999999999"]),
)


def _grown(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.sampled_from("+-*%"), pair).map(lambda x: f"{x[1][0]} {x[0]} {x[1][1]}"),
        st.tuples(st.sampled_from("+-*%"), pair).map(lambda x: f"({x[1][0]}{x[0]}{x[1][1]})"),
        st.tuples(st.sampled_from(["min", "max", "ceildiv", "roundup"]), pair).map(
            lambda x: f"{x[0]}({x[1][0]},{x[1][1]})"
        ),
        children.map(lambda x: f"-{x}"),
    )


FORMULAS = st.recursive(_LEAF, _grown, max_leaves=10)
#: Near misses: characters of the grammar in any order.
TEXTS = st.one_of(st.text("s01d2+-*%(), minaxcelroudup<=>!\t\n\0é٣", max_size=24), FORMULAS)
SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "=", "<>", ""])

LAUNCH = GpuLaunchSpec(
    name="add",
    ops=("add",),
    entry="kernel_0",
    when="s0 % 8 == 0",
    grid=("ceildiv(s0, 1024)", "s1", "1"),
    block=(256, 1, 1),
    shared_bytes="s0 * 4",
    params=("buffer:0", "buffer:2", "workspace:s0*16", "i64:s0-s1"),
    resources=GpuResources(32, 0, 512),
)


def _outcome(compute: Callable[[], Any]) -> tuple[int, Any]:
    """0 and the value, or the error code that C gives, and None."""
    try:
        return 0, compute()
    except TooLarge:
        return in_c.TOO_LARGE, None
    except FormulaOverflow:
        return in_c.OVERFLOW, None
    except IntegrityError as error:
        codes = [code for part, code in _ERRORS.items() if part in error.message]
        return (codes or [in_c.BAD_TEXT])[0], None


_ERRORS = {
    "unknown symbol": in_c.UNKNOWN_SYMBOL,
    "divides by zero": in_c.DIVIDES_BY_ZERO,
    "at these sizes": in_c.NEGATIVE,
}


@given(TEXTS, SIZES)
def test_both_evaluators_give_one_value_or_one_error(text: str, sizes: dict[str, int]) -> None:
    code, value = in_c.formula(text, sizes)
    wanted_code, wanted = _outcome(lambda: evaluate(text, sizes))
    assert code == wanted_code
    assert code != 0 or value == wanted


@given(TEXTS, SIGNS, TEXTS, SIZES)
def test_both_compare_alike(left: str, sign: str, right: str, sizes: dict[str, int]) -> None:
    text = f"{left}{sign}{right}"
    code, wanted = _outcome(lambda: holds(text, sizes))
    assert in_c.holds(text, sizes) == (code or int(wanted))


@pytest.mark.parametrize("depth", [99, 100, 101, 102, 2000])
@pytest.mark.parametrize("opening", ["(", "-", "min(1,"])
def test_both_give_up_at_one_depth(depth: int, opening: str) -> None:
    text = opening * depth + "1" + ")" * (0 if opening == "-" else depth)
    code, _ = in_c.formula(text, {})
    assert code == _outcome(lambda: evaluate(text, {}))[0]
    assert (code == 0) == (depth <= 100)


@given(st.lists(FORMULAS, min_size=4, max_size=4), SIGNS, SIZES)
def test_both_find_the_same_launch(formulas: list[str], sign: str, sizes: dict[str, int]) -> None:
    when = f"{formulas[0]} {sign} {formulas[1]}" if sign in ("==", "<=") else ""
    grid = (formulas[2], "s0", "1")
    launch = dataclasses.replace(LAUNCH, when=when, grid=grid, shared_bytes=formulas[3], params=("i64:1",))
    status, numbers = in_c.launch(when, grid, formulas[3], sizes)
    code, launches = _outcome(lambda: calls((launch,), sizes))
    assert status == (code or len(launches))
    assert not launches or (*launches[0].grid, launches[0].shared_bytes) == numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("buffer:0", ("b", 0)),
        ("buffer:12", ("b", 12)),
        ("workspace:s0*4", ("w", 20)),
        ("i64:-s0", ("i", -5)),
        ("workspace:-s0", ("", in_c.NEGATIVE)),
        ("buffer:", ("", in_c.BAD_TEXT)),
        ("buffer:01", ("", in_c.BAD_TEXT)),
        ("buffer:-1", ("", in_c.BAD_TEXT)),
        ("buffer:1234567890", ("", in_c.BAD_TEXT)),
        ("f32:1", ("", in_c.BAD_TEXT)),
        ("i64:", ("", in_c.BAD_TEXT)),
        ("i64:s9", ("", in_c.UNKNOWN_SYMBOL)),
    ],
)
def test_both_read_a_parameter_alike(text: str, expected: tuple[str, int]) -> None:
    assert in_c.param(text, {"s0": 5}) == expected
    kinds = {"buffer": "b", "workspace": "w", "i64": "i"}
    launch = dataclasses.replace(LAUNCH, when="", grid=("1", "1", "1"), shared_bytes="0", params=(text,))
    if expected[0]:
        require_valid((launch,), {"s0"}, 20)
        [call] = calls((launch,), {"s0": 5})
        assert call.params == (Param(next(k for k, v in kinds.items() if v == expected[0]), expected[1]),)
    elif expected[1] == in_c.NEGATIVE:
        with pytest.raises(IntegrityError, match="workspace offset is -5 at these sizes"):
            calls((launch,), {"s0": 5})
    else:
        with pytest.raises(IntegrityError):
            require_valid((launch,), {"s0"}, 20)


def test_a_launch_at_given_sizes() -> None:
    require_valid((LAUNCH,), {"s0", "s1"}, 3)
    params = (Param("buffer", 0), Param("buffer", 2), Param("workspace", 16384), Param("i64", 1021))
    call = GpuCall("add", "kernel_0", (1, 3, 1), (256, 1, 1), 4096, params)
    assert calls((LAUNCH,), {"s0": 1024, "s1": 3}) == (call,)
    assert calls((LAUNCH,), {"s0": 1023, "s1": 3}) == ()
    assert calls((LAUNCH,), {"s0": 1024, "s1": 0}) == ()
    with pytest.raises(TooLarge, match="65536 blocks in y"):
        calls((LAUNCH,), {"s0": 1024, "s1": 65536})
    with pytest.raises(TooLarge, match="shared memory"):
        calls((LAUNCH,), {"s0": 2**24, "s1": 1})
    with pytest.raises(FormulaOverflow):
        calls((LAUNCH,), {"s0": 2**62, "s1": 1})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"entry": ""}, "not the name of an entry"),
        ({"entry": "a b"}, "not the name of an entry"),
        ({"block": (0, 1, 1)}, "no GPU has blocks"),
        ({"block": (1024, 2, 1)}, "no GPU has blocks"),
        ({"block": (1, 1, 65)}, "no GPU has blocks"),
        ({"grid": ("1", "s9", "1")}, "unknown symbol 's9'"),
        ({"grid": ("1", "", "1")}, "bad formula"),
        ({"shared_bytes": "1/2"}, "bad formula"),
        ({"when": "s0"}, "bad comparison"),
        ({"when": "s0 = 1"}, "bad comparison"),
        ({"when": "s0 == 1 == 1"}, "bad comparison"),
        ({"when": "s9 == 1"}, "unknown symbol"),
        ({"params": ("buffer:3",)}, "takes buffer 3, and the kernel has 3"),
        ({"params": ("pointer:3",)}, "not a parameter"),
        ({"params": ("i64:1",) * 513}, "513 parameters"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_rejected(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(IntegrityError, match=reason) as caught:
        require_valid((dataclasses.replace(LAUNCH, **change),), {"s0", "s1"}, 3)
    assert "launch 'add'" in caught.value.message


def test_names_are_unique_and_checks_are_comparisons() -> None:
    with pytest.raises(IntegrityError, match="one name"):
        require_valid((LAUNCH, LAUNCH), {"s0", "s1"}, 3)
    require_checks(("s0 == s1", "s0 <= 4"), {"s0", "s1"})
    for check in ("", "s0", "s0 == s9"):
        with pytest.raises(IntegrityError):
            require_checks((check,), {"s0", "s1"})


def _message(**changes: Any) -> manifest_pb2.Manifest:
    launch = {"name": "add", "entry": "k", "grid": ["s0", "1", "1"], "block": [32, 1, 1], "shared_bytes": "0"}
    fields: dict[str, Any] = {
        "target": {"gpu": {"arch": "sm_90"}},
        "inputs": [{"dtype": "DATA_TYPE_F32", "dims": ["s0"]}],
        "outputs": [{"dtype": "DATA_TYPE_F32", "dims": ["s0"]}],
        "symbols": [{"name": "s0", "arg": 0, "axis": 0}],
        "checks": ["s0 <= 65536"],
        "gpu_launches": [launch | {"params": ["buffer:0", "buffer:1"]} | changes.pop("launch", {})],
    }
    return manifest_pb2.Manifest(**fields | changes)


def test_a_manifest_for_a_gpu_is_its_bytes() -> None:
    data = _message(launch={"resources": {"registers": 9}}).SerializeToString(deterministic=True)
    manifest = Manifest.from_bytes(data)
    assert manifest.gpu_launches[0].params == ("buffer:0", "buffer:1")
    assert manifest.gpu_launches[0].resources == GpuResources(9, 0, 0)
    assert manifest.checks == ("s0 <= 65536",)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert str(manifest.target) == "sm_90"


@pytest.mark.parametrize(
    "changes",
    [
        {"launch": {"grid": ["1"]}},
        {"launch": {"block": [1, 1, 1, 1]}},
        {"launch": {"block": [2**31, 1, 1]}},
        {"launch": {"params": ["buffer:2"]}},
        {"launch": {"grid": ["s1", "1", "1"]}},
        {"launches": [{"name": "x"}]},
        {"checks": ["True"]},
        {"target": {"cpu": {"isa": "x86-64-v3"}}},
        {"target": {"gpu": {"arch": "sm_9000"}}},
        {"target": {"gpu": {"arch": "sm_90", "ptx_version": "1.0"}}},
    ],
    ids=str,
)
def test_a_hostile_manifest_is_an_integrity_error(changes: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        Manifest.from_bytes(_message(**changes).SerializeToString())
