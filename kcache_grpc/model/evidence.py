"""Which sizes of a program may change: what its dynamic dimensions and other programs show.

The constants of a static program do not tell which of them were computed from sizes. A kernel for sizes
other than the program's own therefore needs evidence: dimensions that the program leaves dynamic, or programs
of the same spec, with the same constants, at other sizes (docs/internals/shape-erasure.md). Server and client
apply these functions to the same signed bindings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import Binding
from kcache_grpc.model.sizes.modes import Axis, Dim, ShapeRequirements
from kcache_grpc.model.variants import Shape, SpecSizes, requested_shape, spec_sizes, variant

#: Symbols that differ, up to which sums and products of three of them are compared; above it of two.
_MOST_IN_TRIPLES = 8

_REMEDY = (
    "export it with dynamic dimensions (jax.export.symbolic_shape, dynamic_shapes of torch.export, ? in "
    "MLIR), give a second program at other sizes (compile([p4, p6], dynamic=True), --evidence FILE), or take "
    'the risk with dynamic="assume"'
)


@dataclass(frozen=True)
class Witness:
    """What one program shows of its spec: sizes at which the spec is what the program computes.

    ``sizes`` are the symbols with a size; ``dynamic`` are those that the program leaves dynamic.
    ``constants`` identifies what the spec does not hold: lifted constants and quantization parameters.
    """

    program_digest: bytes
    spec_digest: bytes
    sizes: tuple[tuple[str, int], ...]
    dynamic: frozenset[str]
    constants: tuple[str, ...]

    def agrees(self, other: Witness) -> bool:
        """Whether both are one computation, sizes aside."""
        return self.spec_digest == other.spec_digest and self.constants == other.constants


def witness(binding: Binding) -> Witness:
    """What the program of a binding shows. Raises ``IntegrityError`` where that contradicts itself."""
    spec = spec_sizes(binding)
    return Witness(
        binding.program_digest,
        binding.spec_digest,
        tuple(spec.known.items()),
        frozenset(symbol.name for symbol in spec.symbols) - spec.known.keys(),
        (*(constant.sha256.hex() for constant in binding.constants), *map(repr, binding.quantized)),
    )


@lru_cache(maxsize=4096)
def witness_in(payload: bytes) -> Witness:
    """Of a serialized binding, the service's own. Raises ``IntegrityError``."""
    return witness(Binding.from_bytes(payload))


def evident(own: Witness, others: Iterable[Witness]) -> frozenset[str]:
    """The symbols that may change: dynamic in one of the programs, or different in a way that shows it.

    A size that differs among the programs is evident unless a sum, difference, product or quotient with one
    or two others that differ is the same in all of them: a constant of the programs may be computed from
    that. Programs that do not agree with ``own`` show nothing.
    """
    programs = [own, *(other for other in others if own.agrees(other))]
    dynamic = frozenset[str]().union(*(each.dynamic for each in programs))
    observed = list({tuple(sorted(each.sizes)): dict(each.sizes) for each in programs}.values())
    names = [name for name, _ in own.sizes if name not in dynamic]
    varied = frozenset(name for name in names if len({sizes[name] for sizes in observed}) > 1)
    related = set[str]()
    most = 3 if len(varied) <= _MOST_IN_TRIPLES else 2
    for count in range(2, most + 1):
        for group in itertools.combinations(varied, count):
            if _is_related(group, observed):
                related.update(group)
    return dynamic | (varied - related)


def _is_related(group: Sequence[str], observed: Sequence[Mapping[str, int]]) -> bool:
    """Whether a signed sum, or a product of the sizes or their inverses, is the same in all programs."""
    tuples = [[sizes[name] for name in group] for sizes in observed]
    for signs in itertools.product((1, -1), repeat=len(group) - 1):
        if len({_sum(sizes, signs) for sizes in tuples}) == 1:
            return True
        if all(all(sizes) for sizes in tuples) and len({_product(sizes, signs) for sizes in tuples}) == 1:
            return True
    return False


def _sum(sizes: Sequence[int], signs: Sequence[int]) -> int:
    return sizes[0] + sum(sign * size for sign, size in zip(signs, sizes[1:], strict=True))


def _product(sizes: Sequence[int], signs: Sequence[int]) -> Fraction:
    factors = [
        Fraction(size) if sign > 0 else Fraction(1, size) for sign, size in zip(signs, sizes[1:], strict=True)
    ]
    return math.prod(factors, start=Fraction(sizes[0]))


def dynamic_shape(binding: Binding, requirements: ShapeRequirements, others: Sequence[Witness]) -> Shape:
    """Of the dynamic kernel that ``requirements`` gets for a program; ``others`` are its evidence.

    Without ``axes`` the symbols are those with evidence, else those of ``axes``. Raises ``ArgumentError`` for
    axes that cannot be symbols, for axes or a program without evidence, and for evidence of another
    computation.
    """
    spec = spec_sizes(binding)
    requested = requested_shape(spec, requirements.axes)
    if requirements.assume:
        return requested
    own = witness(binding)
    for number, other in enumerate(others, start=2):
        if not own.agrees(other):
            raise _disagreement(own, other, number)
    return _evident_shape(spec, requirements.axes, requested, evident(own, others), others)


def _evident_shape(
    spec: SpecSizes,
    axes: tuple[tuple[Axis, Dim], ...],
    requested: Shape,
    shown: frozenset[str],
    others: Sequence[Witness],
) -> Shape:
    """Return the requested shape, or that of the symbols with evidence if no axes were requested.

    ``shown`` are the symbols with evidence. Raises ``ArgumentError`` if a requested symbol has none.
    """
    free = _free(spec, requested)
    lacking = [symbol for symbol in spec.symbols if symbol.name in free - shown]
    if not lacking:
        return requested
    if free & shown and not axes:
        return requested_shape(spec, axes, within=shown)
    name = lacking[0].name
    at, size = spec.source(name), spec.known[name]
    lacks = f"a kernel for other sizes of {at} ({name}) needs evidence"
    if others:
        if all(dict(other.sizes).get(name) == size for other in others):
            reason = f"is {size} in all of the programs"
        else:
            reason = (
                "changes together with other sizes: their sum, difference, product or quotient is the same "
                "in all of the programs, and constants may be computed from that"
            )
        raise ArgumentError(
            f"{lacks}, and it {reason}; give one more program, at which this size is another, or export "
            "with dynamic dimensions (jax.export.symbolic_shape, dynamic_shapes of torch.export, ? in MLIR)",
            argument="dynamic",
        )
    raise ArgumentError(
        f"{lacks}: the program is for size {size}, and does not show which of its constants were computed "
        f"from it; {_REMEDY}",
        argument="dynamic",
    )


def auto_shape(spec: SpecSizes, axes: Iterable[tuple[Axis, Dim]], shown: frozenset[str]) -> Shape:
    """Of the kernel that automatic mode compiles: of the requested symbols those that are evident."""
    return requested_shape(spec, axes, within=shown)


def is_evident(spec: SpecSizes, shape: Shape, shown: frozenset[str]) -> bool:
    """Whether a kernel of this shape takes other sizes of evident symbols only."""
    return _free(spec, shape) <= shown | (
        frozenset(symbol.name for symbol in spec.symbols) - spec.known.keys()
    )


def _free(spec: SpecSizes, shape: Shape) -> frozenset[str]:
    candidate = variant(spec, shape)
    return frozenset() if candidate is None else candidate.free


def _disagreement(own: Witness, other: Witness, number: int) -> ArgumentError:
    if own.spec_digest == other.spec_digest:
        reason = "its constants differ: they may be computed from sizes"
    else:
        reason = (
            "its spec differs: they are not one computation, or one that uses its sizes as numbers (such as "
            "x / sqrt(n)) or that cuts them (slices, splits)"
        )
    return ArgumentError(
        f"program {number} is no evidence for other sizes of the first program, as {reason}; export the "
        "program with dynamic dimensions (jax.export.symbolic_shape, dynamic_shapes of torch.export, ? in "
        "MLIR), or compile each for its own sizes",
        argument="dynamic",
    )
