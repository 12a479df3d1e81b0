"""docs/internals/prior-designs.md lists everything of the originals, and the tests that it cites exist."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from tests.caches.harness import pages

pytestmark = pytest.mark.issue(number=20, point=1)

#: What the C++ files define: public and file-local functions, types and their members.
KERNEL_CACHE = """
    KernelCacheImpl getKernelCache normalizeGraphForCache store lookupGraph retrieve nolock_retrieve
    debugNumCachedKernelSpecs
"""
KERNEL_HOLDER = """
    AOTIPythonKernelHolder.operator() AOTIPythonKernelHolder.cache_lookup AOTIPythonKernelHolder.cache_hit
    AOTIPythonKernelHolder.cache_miss AOTIPythonKernelHolder.produce_aoti_kernel_lib
    AOTIPythonKernelHolder.init_aoti_kernel_cache AOTIPythonKernelHolder.load_aoti_model_runner
    AOTIKernelMetadata.check TensorMetadata.build_guard TensorMetadata.operator== ParameterTag
    ParameterMetadataValue ParameterMetadata.equal_to ParameterMetadata.operator== unpack_tensor_ivalue
    unpack_optional_tensor_ivalue unpack_tensor_list_ivalue unpack_optional_tensor_list_ivalue unpack_tensors
    is_default_value unpack_input_parameters operator<<
"""


def inductor() -> Path:
    """The folder of the installed Inductor, if the page describes its version. PyTorch is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("PyTorch is not installed")
    version = re.match(r"\d+\.\d+", importlib.metadata.version("torch"))
    if version is None or f"of PyTorch {version[0]};" not in pages.PAGE.read_text():
        pytest.skip("the page describes another version of PyTorch")
    return Path(spec.origin).parent / "_inductor"


@pytest.mark.parametrize("name", ["cache.py", "codecache.py"])
def test_every_class_and_function_of_the_installed_file_is_listed(name: str) -> None:
    defined = pages.defined((inductor() / name).read_text())
    listed = pages.listed(pages.sections()[f"torch/_inductor/{name}"])
    methods = {each.rpartition(".")[0] for each in listed}
    assert {each for each in defined if each not in listed and each not in methods} == set()
    assert set(listed) - defined == set()
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize(
    ("name", "names"), [("kernel_cache.h", KERNEL_CACHE), ("kernel_holder.h", KERNEL_HOLDER)]
)
def test_every_class_and_function_of_the_other_files_is_listed(name: str, names: str) -> None:
    assert sorted(pages.listed(pages.sections()[name])) == sorted(names.split())


def test_every_row_says_what_implements_it_or_why_nothing_does() -> None:
    for section in pages.sections().values():
        for cells in pages.rows(section):
            assert len(cells) == 4, cells
            assert cells[1], cells
            if cells[1] == "none":
                assert cells[3], cells


def test_every_behavior_of_the_generic_caches_has_a_test() -> None:
    section = pages.sections()["torch/_inductor/cache.py"]
    for cells in pages.rows(section):
        assert cells[2].startswith("`tests/caches/"), cells
    behaviors = re.findall(r"^\| .*\(`(?:test_|\.\.\.).*\| `(tests/caches/[^`]+)` \|$", section, re.MULTILINE)
    assert len(behaviors) == 19


def test_the_tests_that_the_page_cites_exist() -> None:
    cited = pages.cited_tests()
    assert len(cited) > 60
    for path, name in cited:
        assert re.search(
            rf"^\s*(?:async )?(?:def|class) {name}\b", (pages.ROOT / path).read_text(), re.MULTILINE
        ) or (not name), (path, name)
