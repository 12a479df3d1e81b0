"""LLVM IR of a long kernel in two modules: what each has, and that both are what the whole was."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from kcache_compiler.llvm import split_module as splitting
from kcache_compiler.llvm.emission import initialize
from kcache_compiler.llvm.split_module import split_module

KERNEL = """
source_filename = "kernel"

@factor = private constant float 3.000000e+00, align 64

define i32 @kcache_run(ptr %0, ptr %1) #0 {
  call void @dispatch(ptr %0, ptr @launch_0_task)
  call void @dispatch(ptr %1, ptr @launch_1_task)
  ret i32 0
}

define i32 @kcache_abi() {
  ret i32 1
}

define internal void @dispatch(ptr %0, ptr %1) #1 {
  call void %1(ptr %0)
  ret void
}

define internal void @launch_0_task(ptr noalias %0) #0 {
  call void @launch_0(ptr %0)
  ret void
}

define internal void @launch_0(ptr noalias %0) #1 {
  %2 = load float, ptr %0, align 4
  %3 = load float, ptr @factor, align 4
  %4 = fmul float %2, %3
  store float %4, ptr %0, align 4
  ret void
}

define internal void @launch_1_task(ptr noalias %0) #0 {
  %2 = load float, ptr @factor, align 4
  %3 = call float @llvm.sqrt.f32(float %2)
  store float %3, ptr %0, align 4
  ret void
}

declare float @llvm.sqrt.f32(float)

attributes #0 = { nounwind }
attributes #1 = { noinline nounwind }

!llvm.module.flags = !{!0}

!0 = !{i32 2, !"Debug Info Version", i32 3}
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "LEAST_TEXT", 0)


def defined(text: str) -> list[str]:
    return re.findall(r"^define .*?@([\w.]+)\(", text, re.MULTILINE)


def test_functions_stay_with_what_they_refer_to_and_the_entry_with_what_it_calls() -> None:
    first, second = split_module(KERNEL)
    assert defined(first) == ["kcache_run", "kcache_abi", "dispatch", "launch_1_task"]
    assert defined(second) == ["launch_0_task.kcache_run", "launch_0"]
    assert "declare hidden void @launch_0_task.kcache_run(ptr noalias) #0\n" in first
    assert "define hidden void @launch_0_task.kcache_run(ptr noalias %0) #0 {" in second
    assert "define internal void @launch_0(" in second


def test_both_are_linked_to_the_whole() -> None:
    initialize()
    context = llvm.create_context()
    first, second = (llvm.parse_assembly(part, context) for part in split_module(KERNEL))
    first.link_in(second)
    first.verify()
    names = {
        function.name.removesuffix(".kcache_run")
        for function in first.functions
        if not function.is_declaration
    }
    assert names == set(defined(KERNEL))


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ("private constant", "internal global"),  # of which there may be one only
        ("@kcache_run(", "@kcache_part("),  # a subkernel
        ("ptr %0, ptr @launch_0_task", "ptr @launch_1_task, ptr @launch_0_task"),
    ],
    ids=["state", "subkernel", "calls"],
)
def test_what_is_not_split(change: str, by: str) -> None:
    text = KERNEL.replace(change, by)
    if change.startswith("ptr"):
        text = text.replace("call void @launch_0(ptr %0)", "call void @launch_0(ptr @launch_1_task)")
        text = text.replace(
            "call void @dispatch(ptr %1, ptr @launch_1_task)", "call void @launch_1_task(ptr %1)"
        )
    assert split_module(text) == (text,)


def test_short_modules_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "LEAST_TEXT", len(KERNEL) + 1)
    assert split_module(KERNEL) == (KERNEL,)
    monkeypatch.setattr(splitting, "LEAST_TEXT", len(KERNEL))
    assert len(split_module(KERNEL)) == 2
