"""Which sizes programs show to be free of constants, and which dynamic kernel that gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.evidence import Witness, dynamic_shape, evident
from kcache_grpc.model.manifest import Binding, ConstantBinding, SymbolSpec, TensorSpec
from kcache_grpc.model.sizes.modes import DYNAMIC, Axis, Dim, ShapeRequirements

pytestmark = pytest.mark.issue(number=19, point=2)

NAMES = ("s0", "s1", "s2")
ALL = ShapeRequirements(DYNAMIC)


def program(*sizes: int) -> Witness:
    """A program of the spec ``f32[s0,s1,s2]``; -1 for a dynamic dimension."""
    pairs = list(zip(NAMES, sizes, strict=False))
    return Witness(
        bytes(sizes[0] % 256 for _ in range(32)),
        b"spec",
        tuple((name, size) for name, size in pairs if size >= 0),
        frozenset(name for name, size in pairs if size < 0),
        (),
    )


@pytest.mark.parametrize(
    ("programs", "shown"),
    [
        ([(4, 8, 50)], ""),
        ([(4, 8, 50), (4, 8, 50)], ""),
        ([(4, 8, 50), (6, 8, 50)], "s0"),
        ([(4, 8, 50), (6, 8, 50), (4, 9, 50)], "s0 s1"),
        # Nothing that two or three sizes give is the same in both.
        ([(4, 8, 50), (6, 9, 50)], "s0 s1"),
        # Differences, quotients, sums and products that are: 8 - 4, 8 / 4, 8 + 4, 8 * 4.
        ([(4, 8, 50), (6, 10, 50)], ""),
        ([(4, 8, 50), (8, 16, 50)], ""),
        ([(4, 8, 50), (5, 7, 50)], ""),
        ([(4, 8, 50), (2, 16, 50)], ""),
        # 8 - 4 again, and a size that is not part of it.
        ([(4, 8, 50), (6, 10, 80)], "s2"),
        # 4 + 8 - 5 of three, though no two are related.
        ([(4, 8, 5), (6, 9, 8)], ""),
        # A third program shows that 8 - 4 is no constant of theirs.
        ([(4, 8, 50), (6, 10, 50), (8, 10, 50)], "s0 s1"),
        # Dynamic dimensions are shown by whoever has them.
        ([(-1, 8, 50)], "s0"),
        ([(4, 8, 50), (-1, 8, 50)], "s0"),
        ([(4, 8, 50), (-1, 9, 50)], "s0 s1"),
        ([(4, 0, 50), (6, 0, 50)], "s0"),
    ],
)
def test_sizes_are_shown_by_what_differs(programs: list[tuple[int, ...]], shown: str) -> None:
    own, *others = (program(*sizes) for sizes in programs)
    assert " ".join(sorted(evident(own, others))) == shown
    assert " ".join(sorted(evident(own, reversed(others)))) == shown


def test_other_computations_and_other_constants_show_nothing() -> None:
    own, other = program(4, 8, 5), program(6, 9, 11)
    assert evident(own, [other]) == set(NAMES)
    assert not evident(own, [replace(other, spec_digest=b"another")])
    assert not evident(own, [replace(other, constants=("1", "2"))])


def binding(rows: int, columns: int, constant: int = 0) -> Binding:
    return Binding(
        program_digest=bytes([rows]) * 32,
        numerics="default",
        namespace="default",
        epoch=1,
        key=1,
        spec_digest=bytes(32),
        inputs=(TensorSpec("f32", (str(rows), str(columns))),),
        arg_names=("x",),
        outputs=(),
        symbols=(SymbolSpec("s0", 0, 0), SymbolSpec("s1", 0, 1)),
        symbol_values=(rows, columns),
        constants=(ConstantBinding(TensorSpec("f32", ("999",)), bytes([constant]) * 32, 3996),),
        symbolic_inputs=(TensorSpec("f32", ("s0", "s1")),),
    )


def shape_of(requirements: ShapeRequirements, own: Binding, *others: Binding) -> str:
    from kcache_grpc.model.evidence import witness

    shape = dynamic_shape(own, requirements, [witness(other) for other in others])
    return " if ".join(filter(None, (shape.arg_spec, shape.guard)))


def test_a_dynamic_kernel_takes_other_sizes_of_what_is_shown() -> None:
    rows = ShapeRequirements(DYNAMIC, ((Axis(0, 0), Dim(max=9)),))
    assert shape_of(ALL, binding(4, 8), binding(6, 8)) == "f32[s0,8]"
    assert shape_of(ALL, binding(4, 8), binding(6, 9)) == "f32[s0,s1]"
    assert shape_of(rows, binding(4, 8), binding(6, 9)) == "f32[s0,8] if s0 <= 9"
    assert shape_of(replace(ALL, assume=True), binding(4, 8)) == "f32[s0,s1]"


@pytest.mark.parametrize(
    ("requirements", "others", "says"),
    [
        (ALL, (), r"axis 0 of argument 0 \(s0\) needs evidence: the program is for size 4.*assume"),
        (ALL, (binding(4, 8),), r"\(s0\) needs evidence, and it is 4 in all of the programs"),
        (ALL, (binding(6, 10),), r"\(s0\) needs evidence, and it changes together with other sizes"),
        (
            ShapeRequirements(DYNAMIC, ((Axis(0, 1), Dim()),)),
            (binding(6, 8),),
            r"axis 1 of argument 0 \(s1\) needs evidence, and it is 8 in all of the programs",
        ),
        (ALL, (binding(6, 8, constant=1),), "program 2 is no evidence .* its constants differ"),
        (
            ALL,
            (binding(6, 8), replace(binding(7, 8), spec_digest=b"x" * 32)),
            "program 3 .* its spec differs",
        ),
    ],
)
def test_what_is_not_shown_is_rejected(
    requirements: ShapeRequirements, others: tuple[Binding, ...], says: str
) -> None:
    with pytest.raises(ArgumentError, match=says):
        shape_of(requirements, binding(4, 8), *others)


@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        ({"mode": "static", "evidence": (bytes(32),)}, "several programs are evidence"),
        ({"mode": "auto", "assume": True}, "only a dynamic kernel"),
        ({"mode": "dynamic", "evidence": (b"short",)}, "not 32 bytes"),
        ({"mode": "dynamic", "evidence": (bytes(32),) * 65}, "65 programs of evidence, more than 64"),
    ],
)
def test_wishes_that_mean_nothing_are_rejected(requirements: dict[str, object], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        ShapeRequirements(**requirements)  # type: ignore[arg-type]
