"""Functions of LLVM IR that are equal become one, and the module stays what it was."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from kcache_compiler.llvm.emission import initialize
from kcache_compiler.llvm.merge_functions import merge_functions

MODULE = """
@table = internal constant ptr @second

define i32 @kcache_run(ptr %0) #0 {
  call void @first(ptr %0)
  call void @third(ptr %0)
  ret i32 0
}

define internal void @first(ptr noalias %0) #0 {
  call void @leaf(ptr %0)
  ret void
}

define internal void @second(ptr noalias %0) #0 {
  call void @leaf(ptr %0)
  ret void
}

define internal void @third(ptr noalias %0) #0 {
  call void @twig(ptr %0)
  ret void
}

define internal void @leaf(ptr %0) #1 {
  store float 1.0, ptr %0, align 4
  ret void
}

define internal void @twig(ptr %0) #1 {
  store float 1.0, ptr %0, align 4
  ret void
}

attributes #0 = { nounwind }
attributes #1 = { noinline nounwind }
"""


def defined(text: str) -> list[str]:
    return re.findall(r"^define [^@]*@([\w.]+)", text, re.MULTILINE)


def test_functions_that_call_equal_functions_are_equal_and_all_references_change() -> None:
    merged = merge_functions(MODULE)
    assert defined(merged) == ["kcache_run", "first", "leaf"]
    assert "@table = internal constant ptr @first" in merged
    assert "call void @third" not in merged
    assert merged.count("call void @first(ptr %0)") == 2


def test_what_is_left_is_a_valid_module() -> None:
    initialize()
    module = llvm.parse_assembly(merge_functions(MODULE), llvm.create_context())
    module.verify()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("store float 1.0, ptr %0, align 4\n  ret void\n}\n\nattributes", "ret void\n}\n\nattributes"),
        ("@twig(ptr %0) #1", "@twig(ptr %0) #0"),
        ("@twig(ptr %0) #1", "@twig(ptr noalias %0) #1"),
        ("define internal void @twig", "define void @twig"),
    ],
)
def test_functions_that_differ_stay(old: str, new: str) -> None:
    assert old in MODULE
    assert defined(merge_functions(MODULE.replace(old, new))) == [
        "kcache_run",
        "first",
        "third",
        "leaf",
        "twig",
    ]


def test_a_function_that_calls_itself_stays() -> None:
    text = MODULE.replace("store float 1.0, ptr %0, align 4", "call void @leaf(ptr %0)", 1)
    text = text.replace("store float 1.0, ptr %0, align 4", "call void @twig(ptr %0)", 1)
    assert "twig" in defined(merge_functions(text))


def test_a_module_without_equal_functions_is_unchanged() -> None:
    merged = merge_functions(MODULE)
    assert merge_functions(merged) == merged
