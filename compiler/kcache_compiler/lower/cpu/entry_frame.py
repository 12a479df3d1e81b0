"""The frame of the entry function: its arguments, its closure and the descriptors of buffers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.cpu.buffer_addresses import DynamicSizes, address_of, dynamic_address_of
from kcache_compiler.lower.cpu.entry_buffers import EntryBuffers
from kcache_compiler.lower.cpu.tasks import ALTERNATING_SLICES
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes, row_major
from kcache_compiler.lower.loops.launch import Outlined
from kcache_compiler.lower.loops.memory import emit_formula, i64, pointer_type
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, builtin, func, llvm
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.schedule.subkernel import Subkernel
from kcache_compiler.shapes.formula import Formula, apply

#: The error code of a failed runtime check of sizes.
SIZES_DISAGREE = 1


@dataclass(frozen=True)
class Areas:
    """The areas after the buffers in the workspace: what the entry stages, shared memory, then ``scratch``
    bytes per worker.
    """

    staged_at: Formula
    shared_at: Formula
    scratch_at: Formula
    scratch: Formula


class Frame:
    """Builds the entry function: its arguments, its closure and the descriptors of buffers."""

    def __init__(
        self,
        unit: Unit,
        main: mlir.Op,
        shapes: Shapes,
        areas: Areas,
        words: int,
        launched: Collection[mlir.Op],
        alternate: Collection[str],
        entry: EntryBuffers,
    ) -> None:
        self.areas = areas
        #: Functions of launches that alternate.
        self.alternate = alternate
        self.entry = entry
        #: Operations that are replaced by calls.
        self.launched = launched
        self.extents = dict(enumerate(unit.extents, len(unit.inputs) + len(unit.constants)))
        self.main = main
        self.choices = parse_choices(unit.options.schedule)
        self.shapes = shapes
        self.body = mlir.block_of(main)
        self.old = list(self.body.arguments)
        location = mlir.unknown_location()
        self.pointers = entry.pointers(
            [self.body.add_argument(pointer_type(), location) for _ in range(entry.count)]
        )
        self.dims, self.workspace, self.host = (
            self.pointers.dims,
            self.pointers.workspace,
            self.pointers.host,
        )
        self.cache: dict[Formula, mlir.Value] = {}
        #: Start addresses of buffers and addresses of closure words, shared by all launches.
        self.begins: dict[mlir.Value, mlir.Value] = {}
        #: Buffers whose addresses are computed before the first launch.
        self.bound: set[mlir.Value] = set()
        self.slots: list[mlir.Value] = []
        self.dead: list[mlir.Op] = []
        self.dispatched = 0
        with mlir.before(mlir.operations(self.body)[0]):
            self.code = self._stack("i32", 1)
            if self.choices.reports_launches:
                #: The number of a launch is the word before its closure.
                self.number = self._stack("i64", words + 1)
                self.closure = memory.advance(self.number, i64(), mlir.constant(1))
            else:
                self.closure = self._stack("i64", words)
            llvm.store(mlir.constant(0, "i32"), self.code)
            self.first = mlir.definition(mlir.constant(0))  # an anchor: code is inserted before it

    def _stack(self, kind: str, count: int) -> mlir.Value:
        return mlir.stack_array(mlir.type_of(kind), count, 8)

    def bind_sizes(self, dynamic_sizes: DynamicSizes) -> None:
        dynamic_sizes.bind(self._size)

    def bind_argument(self, buffer: mlir.Value, sizes: list[Formula]) -> None:
        with mlir.before(self.first):
            base = self._base(mlir.argument_number(buffer))
            if self._has_address_only(buffer):
                self._begin(buffer, base)
                return
            bound = self._descriptor(base, buffer.type, sizes)
        self._begin(bound, base)
        buffer.replace_all_uses_with(bound)
        self.shapes.rename(buffer, bound)

    def _base(self, position: int) -> mlir.Value:
        """The pointer to argument ``position`` of ``main``: the caller's buffer, or a stored extent."""
        if position in self.extents:
            slot = self._stack("i64", 1)
            llvm.store(self._size(self.extents[position]), slot)
            return slot
        number = position - sum(extent < position for extent in self.extents)
        return self.entry.address(number, self.pointers, self._staging)

    @property
    def _staging(self) -> int:
        """The offset in the workspace of the bytes that the entry uses itself; they are of static size."""
        return self.areas.staged_at if isinstance(self.areas.staged_at, int) else 0

    def bind_allocation(self, alloc: mlir.Op, offset: Formula) -> None:
        buffer = alloc.results[0]
        self.dead.append(alloc)
        with mlir.before(self.first):
            base = memory.advance(self.workspace, mlir.type_of("i8"), self._size(offset))
            if self._has_address_only(buffer):
                self._begin(buffer, base)
                return
            bound = self._descriptor(base, buffer.type, self.shapes.sizes(buffer))
        self._begin(bound, base)
        buffer.replace_all_uses_with(bound)
        self.shapes.rename(buffer, bound)

    def _begin(self, buffer: mlir.Value, base: mlir.Value) -> None:
        self.begins[buffer] = base
        self.bound.add(buffer)

    def _has_address_only(self, buffer: mlir.Value) -> bool:
        """Whether nothing uses ``buffer`` but launches, and views whose offset in it is static: they need its
        address, and no descriptor.
        """
        return all(
            user in self.launched
            or (_has_static_offset(user, self.shapes) and self._has_address_only(user.results[0]))
            for user, _ in mlir.uses(buffer)
        )

    def _size(self, formula: Formula) -> mlir.Value:
        with mlir.before(self.first):
            return emit_formula(formula, self.dims, self.cache)

    def _descriptor(self, base: mlir.Value, kind: mlir.Type, sizes: list[Formula]) -> mlir.Value:
        """A row-major memref of ``sizes`` at ``base``."""
        rank = len(sizes)
        arrays = f", array<{rank} x i64>, array<{rank} x i64>" if rank else ""
        struct = mlir.type_of(f"!llvm.struct<(ptr, ptr, i64{arrays})>")
        value = llvm.mlir_poison(struct)

        def put(element: mlir.Value, *path: int) -> None:
            nonlocal value
            value = llvm.insertvalue(value, element, path)

        put(base, 0)
        put(base, 1)
        put(self._size(0), 2)
        for axis, (size, stride) in enumerate(zip(sizes, row_major(sizes), strict=True)):
            put(self._size(size), 3, axis)
            put(self._size(stride), 4, axis)
        return builtin.UnrealizedConversionCastOp([kind], [value]).results[0]

    def call(self, generics: list[mlir.Op], launch: Outlined) -> None:
        with mlir.before(generics[-1]):
            for member in (launch, *launch.after):
                self._dispatch(member)
        for generic in generics:
            generic.erase()

    def _enter(self, subkernel: Subkernel, buffers: list[mlir.Value]) -> None:
        self._pass([self._address(self.shapes.current(buffer)) for buffer in buffers])
        workspace = self._area(apply("-", self.areas.scratch_at, subkernel.fixed))
        arguments = [self.host, self.code, self.closure, self.dims, workspace]
        mlir.call_llvm(f"{subkernel.name}_enter", arguments)

    def _dispatch(self, launch: Outlined) -> None:
        """Emit a launch: store its arguments, compute extent and grain, and call ``kcache_dispatch``."""
        if launch.subkernel is not None:
            self._enter(launch.subkernel, launch.buffers)
            return
        words = [self.dims]
        words += [self._address(self.shapes.current(buffer)) for buffer in launch.buffers]
        for scalar in launch.scalars:
            words += memory.pass_scalar(scalar)
        if launch.shared:
            words.append(self._area(self.areas.shared_at))
        if launch.scratch:
            words.append(self._area(self.areas.scratch_at))
            words.append(self._size(self.areas.scratch))
        if launch.code in self.alternate:
            words.append(self._order())
        self._pass(words)
        task = mlir.address_of_symbol(f"{launch.code}_task")
        cache: dict[Formula, mlir.Value] = {}
        extent = emit_formula(launch.nest.extent, self.dims, cache)
        grain = emit_formula(self.choices.slice_of(launch.nest.grain), self.dims, cache)
        slices = ALTERNATING_SLICES if launch.code in self.alternate else launch.slices
        if slices:
            most = mlir.constant(slices)
            slice_arguments = [self.host, extent, grain, most]
            grain = mlir.call_llvm("kcache_least_slice", slice_arguments, "i64")
        self._check(launch.nest.checks, cache)
        if self.choices.reports_launches:
            llvm.store(mlir.constant(self.dispatched), self.number)
        self.dispatched += 1
        arguments = [self.host, self.code, extent, grain, task, self.closure]
        mlir.call_llvm("kcache_dispatch", arguments)

    def _order(self) -> mlir.Value:
        """Whether a launch runs backwards, as 0 or 1: not where it runs for the first time, then in turn."""
        with mlir.before(self.first):
            slot = self._stack("i64", 1)
            llvm.store(mlir.constant(0), slot)
        order = llvm.load(i64(), slot)
        llvm.store(arith.subi(mlir.constant(1), order), slot)
        return order

    def _area(self, offset: Formula) -> mlir.Value:
        return memory.advance(self.workspace, mlir.type_of("i8"), self._size(offset))

    def _pass(self, words: list[mlir.Value]) -> None:
        """Store the words of the closure at the insertion point."""
        with mlir.before(self.first):
            while len(self.slots) < len(words):
                self.slots.append(memory.advance(self.closure, i64(), mlir.constant(len(self.slots))))
        for word, slot in zip(words, self.slots, strict=False):
            llvm.store(word, slot)

    def _address(self, buffer: mlir.Value) -> mlir.Value:
        """The start address of a buffer, computed once, directly after its definition if sizes are static."""
        if self.shapes.codes:
            return dynamic_address_of(buffer, self.shapes, self._size, self.begins)
        if buffer not in self.begins:
            owner = mlir.defining(buffer)
            if owner is None:
                return address_of(buffer)
            root = memory.root_of(buffer)
            if root in self.begins and _has_static_offset(owner, self.shapes):
                offset = mlir.strides_of(buffer.type)[1] or 0
                width = memory.element_bytes(mlir.element_type(buffer.type))
                with mlir.before(self.first) if root in self.bound else mlir.after(owner):
                    moved = memory.advance(
                        self.begins[root], mlir.type_of("i8"), mlir.constant(offset * width)
                    )
                self.begins[buffer] = moved
                return self.begins[buffer]
            with mlir.after(owner):
                self.begins[buffer] = address_of(buffer)
        return self.begins[buffer]

    def own_accesses(self, accesses: list[mlir.Op]) -> None:
        """Rewrite loads and stores of ``main`` to the addressing of launches: i1 elements are bytes."""
        for access in accesses:
            buffer = access.operands[1 if mlir.name_of(access) == "memref.store" else 0]
            if self.shapes.codes or str(mlir.element_type(buffer.type)) == "i1":
                with mlir.before(access):
                    pointer = memory.Pointer(
                        self._address(buffer),
                        mlir.element_type(buffer.type),
                        [self._step(stride) for stride in self.shapes.strides(buffer)],
                    )
                    _access(access, pointer)
                access.erase()

    def _step(self, stride: Formula) -> mlir.Value:
        if not isinstance(stride, int) and not self.shapes.codes:
            raise UnsupportedOp("memref.load", "a boolean at a dynamic stride")
        return mlir.constant(stride) if isinstance(stride, int) else self._size(stride)

    def require(self, checks: tuple[Check, ...]) -> None:
        """Set the error code before the first launch if ``checks`` do not hold."""
        with mlir.before(self.first):
            self._check(checks, {})

    def _check(self, checks: tuple[Check, ...], cache: dict[Formula, mlir.Value]) -> None:
        """Set the error code if a size is not as a launch requires; the dispatch then skips the launch."""
        for check in checks:
            lhs, rhs = (emit_formula(side, self.dims, cache) for side in (check.left, check.right))
            predicate = arith.CmpIPredicate.ne if check.equal else arith.CmpIPredicate.sgt
            wrong = arith.cmpi(predicate, lhs, rhs)
            old_code = llvm.load(mlir.type_of("i32"), self.code)
            failed = mlir.constant(SIZES_DISAGREE, "i32")
            code = arith.select(wrong, failed, old_code)
            llvm.store(code, self.code)

    def end_loops(self, conditions: list[mlir.Op]) -> None:
        """Exit loops after an error, since the values of their conditions are no longer computed."""
        for condition in conditions:
            with mlir.before(condition):
                code = llvm.load(mlir.type_of("i32"), self.code)
                succeeded = arith.cmpi(arith.CmpIPredicate.eq, code, mlir.constant(0, "i32"))
                condition.operands[0] = arith.andi(condition.operands[0], succeeded)

    def finish(self) -> None:
        """Complete the entry function: return its error code, and replace its memref arguments by pointers.

        Erases views of the old arguments and of removed allocations, then sets the function's type, name and
        visibility.
        """
        returned = mlir.last(self.body)
        with mlir.before(returned):
            self.entry.finish(self.pointers, self._staging)
            func.return_([llvm.load(mlir.type_of("i32"), self.code)])
        returned.erase()
        for alloc in self.dead:
            _erase_views(alloc.results[0])
            alloc.erase()
        for argument in self.old:
            _erase_views(argument)
            self.body.erase_argument(0)
        kind = mlir.function_type([pointer_type()] * self.entry.count, [mlir.type_of("i32")])
        self.main.attributes["function_type"] = mlir.type_attr(kind)
        self.main.attributes["sym_name"] = mlir.string_attr(self.entry.name)
        self.main.attributes["sym_visibility"] = mlir.string_attr("public")


def _has_static_offset(view: mlir.Op, shapes: Shapes) -> bool:
    """Whether ``view`` is a view whose offset in the underlying buffer its type states."""
    if shapes.codes or mlir.name_of(view) not in memory.VIEWS:
        return False
    kind = view.results[0].type
    return None not in mlir.sizes_of(kind) and mlir.strides_of(kind)[1] is not None


def _erase_views(buffer: mlir.Value) -> None:
    """Erase the views of ``buffer`` that nothing else uses."""
    for user, _ in list(mlir.uses(buffer)):
        if mlir.name_of(user) in memory.VIEWS:
            _erase_views(user.results[0])
            if not list(user.results[0].uses):
                user.erase()


def _access(access: mlir.Op, pointer: memory.Pointer) -> None:
    """Replace a load or store by one through ``pointer`` at the insertion point."""
    writes = mlir.name_of(access) == "memref.store"
    offset = mlir.constant(0)
    for index, step in zip(list(access.operands)[2 if writes else 1 :], pointer.steps, strict=True):
        position = arith.index_cast(i64(), index)
        offset = memory.plus(offset, memory.times(position, step))
    if writes:
        memory.store(pointer, offset, access.operands[0])
    else:
        access.results[0].replace_all_uses_with(memory.load(pointer, offset))
