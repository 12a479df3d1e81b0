"""The CPU features that emitted code requires, from its assembly: usually a subset of the target's.

Conservative: every mnemonic is looked up in the lists of features; an unknown mnemonic requires all features
of the target. Registers and masks that only one encoding has count for the whole kernel: AVX-512 as the five
subsets of x86-64-v4 together, SVE with SVE2.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from kcache_compiler.llvm.mnemonics import AARCH64_BASELINE, MNEMONICS
from kcache_compiler.llvm.target import Target

_AVX = frozenset({"avx", "avx2"})
_AVX512 = _AVX | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
#: List of mnemonics -> features that it implies.
_IMPLIED = {"base": frozenset[str](), "avx2": _AVX, "f16c": _AVX | {"f16c"}, "fma": _AVX | {"fma"}}
#: Syntax that only the EVEX encoding has: wide or high registers, masks, broadcasts, rounding; and EVEX forms
#: of AVX2 mnemonics: a broadcast of a general register, a shift of memory by a constant, a permutation of
#: quadwords by a register.
_EVEX = re.compile(
    r"%zmm|%[xy]mm(?:1[6-9]|2[0-9]|3[01])|%k[0-7]\b|\{1to|\{[a-z]+-sae\}|\{sae\}"
    r"|\bvpbroadcast[bwdq]\s+%(?![xy]mm)"
    r"|\bvps(?:ll|rl|ra)(?:w|d|q|dq)\s+\$[^,]+,\s*[^%,\s]"
    r"|\bvperm(?:q|pd)\s+[^$\s]"
)
#: An instruction's mnemonic, after prefixes; a line may hold several.
_INSTRUCTION = re.compile(
    r"(?:^|;)[ \t]+((?:(?:lock|rep|repe|repne|data16|rex64|\{\w+\})[ \t;]+)*)([a-z][\w.]*)", re.MULTILINE
)
_CONDITION = r"(?:n?[osplgbaecz]|n?[lgba]e|p[eo])"
_FAMILIES = (
    (re.compile(rf"(?:cmov|set|j){_CONDITION}[bwlq]?"), "base"),
    (re.compile(r"cmp(?:eq|lt|le|unord|neq|nlt|nle|ord)[sp][sd]"), "base"),
    (re.compile(r"vcmp[a-z]*_?[a-z]*[sp][sd]"), "avx2"),
    (re.compile(r"vcmp[a-z]*_?[a-z]*[sp]h"), "avx512fp16"),
    (re.compile(r"vpcmp(?:eq|neq|lt|le|nlt|nle|ge|gt)u?[bwdq]"), "avx512"),
)


def required_features(assembly: str, target: Target) -> tuple[str, ...]:
    """The features of ``target`` that ``assembly`` requires, in the target's order."""
    if not target.features:
        return ()
    required = _READERS[target.architecture](assembly)
    if required is None or not required <= set(target.features):
        return target.features
    return tuple(feature for feature in target.features if feature in required)


@functools.cache
def _lists() -> dict[str, str]:
    return {word: name for name, words in MNEMONICS.items() for word in words.split()}


def _x86(assembly: str) -> frozenset[str] | None:
    instructions = set(_INSTRUCTION.findall(assembly))
    required = _AVX512 if _EVEX.search(assembly) else frozenset[str]()
    for prefixes, mnemonic in instructions:
        name = _list_of(mnemonic)
        if name is None or "{" in prefixes:
            return None
        required |= _IMPLIED.get(name) or (frozenset() if name == "base" else _of(name))
    return required


def _of(name: str) -> frozenset[str]:
    if name == "avx512":
        return _AVX512
    return _AVX512 | {name} if name.startswith("avx512") else frozenset({name})


def _list_of(mnemonic: str) -> str | None:
    feature_list = _lists().get(mnemonic)
    if feature_list is not None:
        return feature_list
    return next((name for pattern, name in _FAMILIES if pattern.fullmatch(mnemonic)), None)


_SVE = re.compile(r"\b[zp](?:[0-9]|[12][0-9]|3[01])(?:\.[bhsdq]|/[mz])")
_ON_HALVES = r"\t.*(?:\bh[0-9]|\.[48]h\b)"
_HALF = re.compile(
    rf"^\tf(?!cvt)\w+{_ON_HALVES}|^\t(?:[us]cvtf|fcvt[a-z]?[su]){_ON_HALVES}",
    re.MULTILINE,
)
#: Mnemonics of AArch64 -> features.
_AARCH64 = (
    (re.compile(r"[us]dot"), frozenset({"dotprod"})),
    (re.compile(r"bf(?:dot|mmla|mlal[bt]|cvt|cvtn2?|cvtnt)"), frozenset({"bf16"})),
    (re.compile(r"(?:s|u|us)mmla|us?dot|sudot"), frozenset({"i8mm"})),
    (
        re.compile(r"(?:cas|swp|(?:ld|st)(?:add|clr|eor|set|[su]max|[su]min))(?:al?|l)?[bh]?|casp(?:al?|l)?"),
        frozenset({"lse"}),
    ),
    (re.compile(r"crc32c?[bhwx]"), frozenset({"crc"})),
    (re.compile(r"sqrdml[as]h"), frozenset({"rdm"})),
)


@functools.cache
def _aarch64_baseline() -> frozenset[str]:
    return frozenset(AARCH64_BASELINE.split())


def _aarch64(assembly: str) -> frozenset[str] | None:
    if _SVE.search(assembly):
        return None
    required = frozenset({"fullfp16"}) if _HALF.search(assembly) else frozenset[str]()
    for _, mnemonic in set(_INSTRUCTION.findall(assembly)):
        if mnemonic in _aarch64_baseline() or mnemonic.startswith("b."):
            continue
        features = next((features for pattern, features in _AARCH64 if pattern.fullmatch(mnemonic)), None)
        if features is None:
            return None
        required |= features
    return required


_READERS: dict[str, Callable[[str], frozenset[str] | None]] = {"x86_64": _x86, "aarch64": _aarch64}
