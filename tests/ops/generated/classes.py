"""What a program has of each attribute, as classes of values: read from its text, not told by its maker.

``comparison_direction LT``, ``padding negative``, ``body add``, ``rank 3``, ``empty``, ``values NaN``.
"""

from __future__ import annotations

import math
import re

import numpy as np

from tests.ops.generated.structure.stated import MAKING
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import DTYPES, FLOATS, INTEGERS, decode

_TENSOR = re.compile(r"tensor<((?:\d+x)*)([^<>]*(?:<[^<>]*>)?)>")
_NUMBER = re.compile(r"-?\d+")
_HEAD = re.compile(r"@main\((.*?)\) ->", re.DOTALL)
_RESULTS = re.compile(r"@main\(.*?\) -> \((.*?)\) \{\n", re.DOTALL)
_ENUM = re.compile(r"#\w+<\w+ (\w+)>")
_IN_REGION = re.compile(r"(?:stablehlo|chlo|func)\.(\w+)")
#: Lists of axes, whose order counts and not their numbers.
_AXES = re.compile(r"(dimensions|dims|permutation|map|dims_to_operand_dims)$")
_WITH_BODY = ("map", "reduce", "reduce_window", "scatter", "select_and_scatter", "sort")
_BY_INDEX = ("dynamic_gather", "dynamic_slice", "dynamic_update_slice", "gather", "scatter")
#: Attributes that say nothing of what is computed.
_SKIPPED = (
    *("name", "decomposition", "value", "epsilon", "fft_length", "operandSegmentSizes", "resultSegmentSizes"),
)


def classes(program: OpProgram) -> list[str]:
    """The classes of a program, each once."""
    names = {*_shapes(program), *_values(program)}
    name = program.op if "." in program.op else f"stablehlo.{program.op}"
    for match in re.finditer(rf"\b{re.escape(name)}\b", program.text):
        end = program.text.find("\n", match.end())
        line = program.text[match.end() : end]
        for key, value in _attributes(line):
            names |= {f"{key} {label}" for label in _attribute(key, value)}
        if program.op in _WITH_BODY and line.endswith("({"):
            body = program.text[end : program.text.find("\n  })", end)]
            names |= {f"body {label}" for label in _IN_REGION.findall(body)} - {"body return"}
    return sorted(re.sub(r"^\w*dimension_numbers ", "", label) for label in names)


def _attributes(line: str) -> list[tuple[str, str]]:
    """Names and texts between ``<{`` and ``}>``."""
    start = line.find("<{")
    if start < 0:
        return []
    depth, parts, last, quoted = 0, list[str](), start + 2, False
    for place in range(start + 2, len(line)):
        letter = line[place]
        quoted ^= letter == '"'
        if quoted:
            continue
        if letter in "<[({":
            depth += 1
        elif letter in ">])}" and line[place - 1 : place + 1] != "->":
            depth -= 1
        if (letter == "," and depth == 0) or depth < 0:
            parts.append(line[last:place])
            last = place + 1
        if depth < 0:
            break
    pairs = [part.partition("=") for part in parts if "=" in part]
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def _attribute(key: str, value: str) -> list[str]:
    if key in _SKIPPED:
        return []
    if key == "precision_config":
        return re.findall(r"precision (\w+)", value)
    if key == "einsum_config":
        return _forms(value.strip('"'))
    if match := _ENUM.match(value):
        return [match[1]]
    if value in ("true", "false"):
        return [value]
    if value.startswith("array<i1"):
        return [word for word in ("true", "false") if word in value] or ["none"]
    if value.startswith("#stablehlo.conv<"):
        usual = re.sub(r"\s", "", value).startswith("#stablehlo.conv<[b,f")
        return ["batch and feature first" if usual else "any order"]
    if value.startswith("#"):
        inner = re.findall(r"(\w+) = (\[[^\]]*\]|\d+)", value)
        return [f"{name} {label}" for name, text in inner for label in _numbers(name, text)]
    return _numbers(key, re.sub(r" : .*|^array<i64:?|^dense<", "", value))


def _forms(config: str) -> list[str]:
    """What becomes of the letters of an ``einsum``."""
    operands, _, result = config.partition("->")
    terms = operands.split(",")
    letters = dict.fromkeys("".join(terms))
    shared = (
        {letter for letter in letters if all(letter in term for term in terms)} if len(terms) > 1 else set()
    )
    kinds = {
        "batch": bool(shared & set(result)),
        "contracted": bool(shared - set(result)),
        "diagonal": any(len(set(term)) < len(term) for term in terms),
        "summed alone": bool(letters.keys() - shared - set(result)),
        "transposed": list(result) != [letter for letter in letters if letter in result],
    }
    return [kind for kind, holds in kinds.items() if holds] or ["kept"]


def _numbers(name: str, text: str) -> list[str]:
    numbers = [int(match) for match in _NUMBER.findall(text)]
    if not numbers:
        return ["none"]
    if _AXES.search(name) and name not in ("window_dimensions", "batch_dims"):
        return ["in order" if numbers == sorted(numbers) else "out of order"]
    if name.startswith(("index_vector_dim", "dimension", "iota", "feature_index", "dim", "index")):
        return ["0" if numbers[0] == 0 else "above 0"]
    kinds = {
        "negative": min(numbers) < 0,
        "zero": 0 in numbers,
        "one": 1 in numbers,
        "more": max(numbers) > 1,
    }
    return [kind for kind, holds in kinds.items() if holds]


def _shapes(program: OpProgram) -> set[str]:
    head = _HEAD.search(program.text)
    assert head is not None
    seen = _RESULTS.findall(program.text)[0] if program.op in MAKING else head[1]
    shapes = [tuple(int(size) for size in sizes.split("x") if size) for sizes, _ in _TENSOR.findall(seen)]
    labels = {f"rank {max((len(shape) for shape in shapes), default=0)}"}
    if program.op in _BY_INDEX:
        kinds = [kind for _, kind in _TENSOR.findall(head[1])]
        index = kinds[(len(kinds) - 1) // 2 if program.op == "scatter" else -1]
        if len(kinds) > (2 if program.op == "dynamic_update_slice" else 1):
            labels.add(f"index {index}")
    if program.op == "convert":
        labels |= {f"to {dtype}" for dtype in program.result_dtypes}
    if any(math.prod(shape) == 0 for shape in shapes):
        labels.add("empty")
    if any(shape and math.prod(shape) == 1 for shape in shapes):
        labels.add("one element")
    return labels


def _values(program: OpProgram) -> set[str]:
    """Edge values in arguments of the program's dtype."""
    if program.op in MAKING:
        return set()
    head = _HEAD.search(program.text)
    element = DTYPES[program.dtype][0]
    kinds = [kind for _, kind in _TENSOR.findall(head[1] if head else "")]
    data = b"".join(content for content, kind in zip(program.inputs, kinds, strict=False) if kind == element)
    part = {"c64": "f32", "c128": "f64"}.get(program.dtype, program.dtype)
    if part in INTEGERS:
        numbers = np.frombuffer(data, DTYPES[part][1])
        limits = np.iinfo(numbers.dtype)
        edges = {"least": limits.min, "greatest": limits.max, "-1": -1, "0": 0}
        return {f"values {name}" for name, edge in edges.items() if np.any(numbers == edge)}
    if part not in FLOATS:
        return set()
    bits = np.frombuffer(data, DTYPES[part][1])
    values = decode(part, bits)
    smallest = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}[part]
    quiet = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8 << 48}[part]
    kinds_of = {
        "NaN": np.isnan(values),
        "NaN with content": np.isnan(values) & (bits != quiet),
        "inf": np.isinf(values),
        "-0": (values == 0) & np.signbit(values),
        "subnormal": (values != 0) & (np.abs(values) < smallest),
    }
    return {f"values {name}" for name, mask in kinds_of.items() if mask.any()}
