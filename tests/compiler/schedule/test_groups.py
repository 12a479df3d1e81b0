"""Which nests share a launch, told from values alone."""

from __future__ import annotations

from kcache_compiler.schedule.choices import GroupLimits
from kcache_compiler.schedule.groups import Group, Subject, partition
from kcache_compiler.schedule.loop_nest import Access, Axis, Nest
from kcache_compiler.schedule.loops import Buffer, Fused, loops
from kcache_compiler.shapes.formula import Formula, mul

ROWS: tuple[Formula, Formula] = (64, 100)
X, MAXIMUM, SHIFTED, SUM, OUT = range(5)


def strides(sizes: tuple[Formula, ...]) -> list[Formula]:
    steps: list[Formula] = []
    step: Formula = 1
    for size in reversed(sizes):
        steps.insert(0, step)
        step = mul(step, size)
    return steps


def touch(
    buffer: int, sizes: tuple[Formula, ...], dims: tuple[int, ...], count: int, mode: str = "r"
) -> Access:
    """An access of ``count`` loops to a row-major buffer through ``dims``; mode r, w or rw."""
    steps = dict(zip(dims, strides(sizes), strict=True))
    return Access(
        tuple(steps.get(axis, 0) for axis in range(count)), 0, "w" in mode, buffer, dims, "r" in mode
    )


def nest(kinds: str, sizes: tuple[Formula, ...], *accesses: Access) -> Subject:
    axes = tuple(
        Axis(size, kind == "p", (n,)) for n, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    )
    return Subject(Nest(axes, accesses))


def rows(sizes: tuple[Formula, Formula]) -> list[Subject]:
    """Softmax: maximum of rows, exponentials, their sums, quotients."""
    row = sizes[:1]
    return [
        nest("p", row, touch(MAXIMUM, row, (0,), 1, "w")),
        nest("pr", sizes, touch(X, sizes, (0, 1), 2), touch(MAXIMUM, row, (0,), 2, "rw")),
        nest(
            "pp",
            sizes,
            touch(X, sizes, (0, 1), 2),
            touch(MAXIMUM, row, (0,), 2),
            touch(SHIFTED, sizes, (0, 1), 2, "w"),
        ),
        nest("p", row, touch(SUM, row, (0,), 1, "w")),
        nest("pr", sizes, touch(SHIFTED, sizes, (0, 1), 2), touch(SUM, row, (0,), 2, "rw")),
        nest(
            "pp",
            sizes,
            touch(SHIFTED, sizes, (0, 1), 2),
            touch(SUM, row, (0,), 2),
            touch(OUT, sizes, (0, 1), 2, "w"),
        ),
    ]


def buffers(sizes: tuple[Formula, Formula]) -> dict[int, Buffer]:
    row = sizes[:1]
    return {
        X: Buffer(sizes, 4),
        MAXIMUM: Buffer(row, 4, local=True),
        SHIFTED: Buffer(sizes, 4, local=True),
        SUM: Buffer(row, 4, local=True),
        OUT: Buffer(sizes, 4),
    }


def numbers(groups: list[Group]) -> list[list[list[int]]]:
    return [[[member.number for member in segment] for segment in group.segments] for group in groups]


def fused(subjects: list[Subject], known: dict[int, Buffer]) -> Fused:
    (group,) = partition(subjects, range(20))
    return loops(group, subjects, known)


def test_softmax_is_one_launch_whose_rows_live_in_registers_and_the_result() -> None:
    for sizes in (ROWS, ("s0", "s1"), ("s0", 100)):
        subjects = rows(sizes)
        assert numbers(partition(subjects, range(5))) == [[[0], [1], [3], [2, 4], [5]]]
        whole = fused(subjects, buffers(sizes))
        assert whole.shared == 1
        assert whole.unstored == {MAXIMUM, SUM}
        assert dict(whole.instead) == {SHIFTED: OUT}
        assert whole.extent == sizes[0]


def test_a_single_row_that_one_thread_computes_anyway_is_one_launch_with_a_loop_over_rows() -> None:
    limits = GroupLimits(serial=65536)
    subjects = rows((1, 50257))
    (group,) = partition(subjects, range(5), limits)
    whole = loops(group, subjects, buffers((1, 50257)))
    assert (whole.shared, whole.extent, whole.is_row) == (1, 1, True)
    assert dict(whole.instead) == {SHIFTED: OUT}
    assert len(partition(subjects, range(5))) > 1
    assert len(partition(rows((1, 65536)), range(5), limits)) > 1
    assert len(partition(rows((7, 9361)), range(5), limits)) == 1
    assert len(partition(rows((7, 9362)), range(5), limits)) > 1


def test_the_loop_over_a_single_short_row_is_dropped() -> None:
    for length, shared in ((8192, 0), (8193, 1)):
        subjects = rows((1, length))
        (group,) = partition(subjects, range(5), GroupLimits(serial=65536))
        whole = loops(group, subjects, buffers((1, length)))
        assert (whole.shared, whole.is_row) == (shared, shared == 1)


def test_a_row_that_no_result_can_hold_is_on_the_stack_when_it_is_short() -> None:
    for sizes, row in ((ROWS, {SHIFTED: 400}), ((64, 1 << 20), {}), (("s0", "s1"), {})):
        known = buffers(sizes) | {OUT: Buffer(sizes, 2, "f16")}
        assert dict(fused(rows(sizes), known).rows) == row


def test_a_buffer_that_others_need_stays() -> None:
    known = buffers(ROWS) | {SHIFTED: Buffer(ROWS, 4), SUM: Buffer(ROWS[:1], 4)}
    whole = fused(rows(ROWS), known)
    assert whole.unstored == {MAXIMUM}
    assert not whole.rows
    assert not whole.instead


def test_elementwise_users_of_one_value_are_one_loop_over_all_elements() -> None:
    chain = [
        nest("pp", ROWS, touch(0, ROWS, (0, 1), 2), touch(1, ROWS, (0, 1), 2, "w")),
        nest("pp", ROWS, touch(1, ROWS, (0, 1), 2), touch(2, ROWS, (0, 1), 2, "w")),
        nest("pp", ROWS, touch(1, ROWS, (0, 1), 2), touch(3, ROWS, (0, 1), 2, "w")),
    ]
    known = {n: Buffer(ROWS, 4, local=n == 1) for n in range(4)}
    whole = fused(chain, known)
    assert [len(segment) for segment in whole.segments] == [3]
    assert whole.unstored == {1}
    assert [axis.size for axis in whole.statements[0].nest.axes] == [6400]


def test_a_transposed_reader_walks_along() -> None:
    turned = (ROWS[1], ROWS[0])
    pair = [
        nest("pp", ROWS, touch(0, ROWS, (0, 1), 2), touch(1, ROWS, (0, 1), 2, "w")),
        nest("pp", turned, touch(1, ROWS, (1, 0), 2), touch(2, turned, (0, 1), 2, "w")),
    ]
    (group,) = partition(pair, range(3))
    assert [member.dims for member in group.members] == [(0, 1), (1, 0)]


def test_iterations_that_read_each_other_stay_apart() -> None:
    write = nest("pp", ROWS, touch(0, ROWS, (0, 1), 2), touch(1, ROWS, (0, 1), 2, "w"))
    along = Access((101,), 0, written=False, buffer=1, dims=(None, None))
    diagonal = nest("p", ROWS[:1], along, touch(2, ROWS[:1], (0,), 1, "w"))
    shifted = Access((100, 1), 1, written=False, buffer=1, dims=(0, None))
    moved = nest("pp", ROWS, shifted, touch(2, ROWS, (0, 1), 2, "w"))
    columns = nest("pr", (ROWS[1], ROWS[0]), touch(1, ROWS, (1, 0), 2), touch(2, ROWS[1:], (0,), 2, "rw"))
    square = (64, 64)
    transposed = nest("pp", square, touch(1, square, (1, 0), 2), touch(0, square, (0, 1), 2, "w"))
    in_place = nest("pp", square, touch(0, square, (0, 1), 2), touch(1, square, (0, 1), 2, "w"))
    assert len(partition([write, diagonal], range(3))) == 2
    assert len(partition([write, moved], range(3))[0].segments) == 2
    assert len(partition([write, columns], range(3))[0].segments) == 1
    assert len(partition([in_place, transposed], range(3))) == 2


def test_views_of_one_buffer_and_unknown_reads_keep_nests_apart() -> None:
    pair = [
        nest("pp", ROWS, touch(0, ROWS, (0, 1), 2), touch(1, ROWS, (0, 1), 2, "w")),
        nest("pp", ROWS, touch(2, ROWS, (0, 1), 2), touch(3, ROWS, (0, 1), 2, "w")),
    ]
    assert len(partition(pair, [0, 1, 1, 3])) == 2
    gather = Subject(nest("pp", ROWS, touch(3, ROWS, (0, 1), 2, "w")).nest, opaque=frozenset({1}))
    assert len(partition([pair[0], gather], range(4))) == 2


def test_a_writer_is_apart_from_a_nest_that_reads_the_same_through_a_view() -> None:
    fill = nest("pp", ROWS, touch(0, ROWS, (0, 1), 2, "w"))
    start = nest("p", ROWS[:1], touch(2, ROWS[:1], (0,), 1, "w"))
    total = touch(2, ROWS[:1], (0,), 2, "rw")
    products = nest("pr", ROWS, touch(0, ROWS, (0, 1), 2), touch(1, ROWS[1:], (1,), 2), total)
    subjects = [fill, start, products]
    assert numbers(partition(subjects, range(3))) == [[[1], [0], [2]]]
    assert numbers(partition(subjects, [0, 0, 2])) == [[[0]], [[1], [2]]]
    lookup = Subject(products.nest, opaque=frozenset({3}))
    assert numbers(partition([fill, start, lookup], [0, 1, 2, 0])) == [[[0]], [[1], [2]]]


def test_a_nest_does_not_pass_what_it_depends_on() -> None:
    size = ROWS[:1]
    write = nest("p", size, touch(0, size, (0,), 1), touch(1, size, (0,), 1, "w"))
    other = nest("r", size, touch(1, size, (0,), 1), touch(2, (), (), 1, "rw"))
    later = nest("p", size, touch(1, size, (0,), 1), touch(2, (), (), 1), touch(3, size, (0,), 1, "w"))
    assert numbers(partition([write, other, later], range(4))) == [[[0]], [[1]], [[2]]]
    free = nest("p", size, touch(1, size, (0,), 1), touch(3, size, (0,), 1, "w"))
    assert numbers(partition([write, other, free], range(4))) == [[[0, 2]], [[1]]]


def test_few_long_rows_keep_their_threads() -> None:
    assert len(partition(rows((2, 1 << 16)), range(5))) > 1
    assert len(partition(rows((2, 100)), range(5))) == 1


def test_columns_are_not_walked_one_by_one() -> None:
    turned = (ROWS[1], ROWS[0])
    column = (ROWS[1],)
    subjects = [
        nest("pr", turned, touch(0, ROWS, (1, 0), 2), touch(1, column, (0,), 2, "rw")),
        nest(
            "pp", ROWS, touch(0, ROWS, (0, 1), 2), touch(1, column, (1,), 2), touch(2, ROWS, (0, 1), 2, "w")
        ),
    ]
    groups = partition(subjects, range(3))
    assert numbers(groups) == [[[0]], [[1]]]
    known = {0: Buffer(ROWS, 4), 1: Buffer(column, 4, local=True)}
    order = loops(groups[0], subjects, known).statements[0].nest.axes
    assert [(axis.size, axis.parallel) for axis in order] == [(64, False), (100, True)]


def test_a_contraction_takes_its_start_and_its_elementwise_users_only() -> None:
    m, k, n = 32, 16, 8
    result = (m, n)
    product = nest(
        "ppr",
        (m, n, k),
        touch(0, (m, k), (0, 2), 3),
        touch(1, (k, n), (2, 1), 3),
        touch(2, result, (0, 1), 3, "rw"),
    )
    start = nest("pp", result, touch(2, result, (0, 1), 2, "w"))
    bias = nest(
        "pp", result, touch(2, result, (0, 1), 2), touch(3, (n,), (1,), 2), touch(4, result, (0, 1), 2, "w")
    )
    total = nest("pr", result, touch(4, result, (0, 1), 2), touch(5, (m,), (0,), 2, "rw"))
    contraction = Subject(product.nest, contraction=True)
    assert numbers(partition([start, contraction, bias, total], range(6))) == [[[0], [1], [2]], [[3]]]


def optimizer(count: int) -> tuple[list[Subject], frozenset[int]]:
    """As the canonical form orders a step of an optimizer: all first moments, the scalar that corrects them,
    then all weights; with the buffers of the caller. Array ``i`` has buffers ``5 * i`` and following.
    """
    size: tuple[Formula, ...] = (1000,)
    scalar = 5 * count
    moments = [
        nest("p", size, touch(5 * i, size, (0,), 1), touch(5 * i + 1, size, (0,), 1, "w"))
        for i in range(count)
    ]
    correction = nest("", (), touch(scalar + 1, (), (), 0), touch(scalar, (), (), 0, "w"))
    weights = [
        nest(
            "p",
            size,
            *(touch(5 * i + 1, size, (0,), 1), touch(scalar, (), (), 1)),
            *(touch(5 * i + 2, size, (0,), 1), touch(5 * i + 3, size, (0,), 1, "w")),
        )
        for i in range(count)
    ]
    return [*moments, correction, *weights], frozenset(range(scalar)) | {scalar + 1}


def test_results_join_the_launch_whose_results_they_read_however_far_it_is() -> None:
    for count in (3, 40):
        subjects, caller_roots = optimizer(count)
        groups = partition(subjects, range(5 * count + 2), caller_roots=caller_roots)
        assert numbers(groups) == [[[count]], *([[i, count + 1 + i]] for i in range(count))]


def test_a_temporary_joins_no_launch_that_is_far() -> None:
    subjects, caller_roots = optimizer(40)
    moved = caller_roots - {5 * 0 + 3}
    groups = numbers(partition(subjects, range(202), caller_roots=moved))
    assert [[0]] in groups
    assert [[1, 42]] in groups


def test_a_scalar_that_reads_what_a_launch_writes_stays_behind_it() -> None:
    subjects, caller_roots = optimizer(3)
    reads_a_moment = Access((), 0, False, 1, (None,))
    subjects[3] = nest("", (), reads_a_moment, touch(15, (), (), 0, "w"))
    order = [
        members
        for group in numbers(partition(subjects, range(17), caller_roots=caller_roots))
        for members in group
    ]
    positions = {number: place for place, members in enumerate(order) for number in members}
    assert positions[0] < positions[3] < min(positions[number] for number in (4, 5, 6))
