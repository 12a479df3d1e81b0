"""What breaks a constraint of the specification is rejected before a key is taken, by op and constraint."""

from __future__ import annotations

import pytest

from kcache_compiler import canonicalize
from kcache_compiler.errors import InvalidProgram
from tests.ops.harness.quantized_violations import quantized_violations
from tests.ops.harness.violations import Violation, violations

_ALL = [*violations(), *quantized_violations()]


@pytest.mark.parametrize("violation", _ALL, ids=[violation.id for violation in _ALL])
def test_a_broken_constraint_is_named(violation: Violation) -> None:
    with pytest.raises(InvalidProgram) as rejection:
        canonicalize(violation.program.encode(), "stablehlo", "strict")
    message = str(rejection.value)
    assert violation.op in message
    assert all(word in message for word in violation.words), message
