"""The general form: one thread per point of the parallel axes, with all inner loops in the thread."""

from __future__ import annotations

from collections.abc import Mapping

from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, Point, split
from kcache_compiler.lower.loops.elements import Code, Registers
from kcache_compiler.lower.loops.group_body import Writer
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Fused
from kcache_compiler.shapes.formula import Formula, product


class PointWriter(Writer):
    """Writes all loops inside the ``shared`` axes, for one point of them."""

    asks = False

    def __init__(
        self,
        kernel: Kernel,
        fused: Fused,
        codes: Mapping[int, Code],
        pointers: Mapping[int, Pointer],
        views: dict[mlir.Value, Pointer],
        scalars: Mapping[mlir.Value, mlir.Value],
    ) -> None:
        self.kernel = kernel
        super().__init__(fused, codes, pointers, views, scalars, None, None)

    def _value(self, formula: Formula) -> mlir.Value:
        return self.kernel.value(formula)

    def start(self, access: Access) -> Pointer:
        """The pointer to the first element of an access."""
        return self._start(access)

    def point(self, counters: list[mlir.Value], values: Registers | None = None) -> None:
        """Write the segments of the group at ``counters`` of the shared axes; ``values`` are in registers."""
        registers: Registers = dict(values or {})
        for segment in self.fused.segments:
            self._segment(segment, counters, registers)

    def numbered(self, sizes: list[Formula]) -> Point:
        """``point`` by the linear number of the point in shared axes of ``sizes``."""
        return lambda number, narrow: self.point(split(number, narrow, sizes, self.kernel.value))


def write_points(writer: PointWriter) -> LaunchGeometry:
    """Write the body of the kernel at the insertion point."""
    kernel, fused = writer.kernel, writer.fused
    sizes = [axis.size for axis in fused.statements[0].nest.axes[: fused.shared]]
    points = product(sizes)
    if points == 1:
        writer.point([mlir.constant(0)] * fused.shared)
        return LaunchGeometry((1, 1, 1), (1, 1, 1))
    return kernel.deal(points, kernel.sizes.choices.threads, writer.numbered(sizes))
