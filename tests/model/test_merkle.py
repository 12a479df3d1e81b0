"""Merkle trees: the test vectors of Certificate Transparency, the definition of RFC 6962, and proofs."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.model.merkle import inclusion_path, leaf_hash, node_hash, root_of_path, tree_root

#: Leaves and roots of the reference implementation (certificate-transparency, merkle_tree_test).
CONTENTS = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def definition(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return node_hash(definition(leaves[:k]), definition(leaves[k:]))


@pytest.mark.parametrize("size", range(9))
def test_published_vectors(size: int) -> None:
    assert tree_root([leaf_hash(content) for content in CONTENTS[:size]]).hex() == ROOTS[size]


@pytest.mark.parametrize("size", [*range(1, 35), 64, 65, 127, 1000])
def test_every_leaf_of_the_defined_tree_is_proven_by_its_path_and_by_no_other(size: int) -> None:
    leaves = [leaf_hash(str(at).encode()) for at in range(size)]
    root = tree_root(leaves)
    assert root == definition(leaves)
    for index in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
        path = inclusion_path(leaves, index)
        assert root_of_path(leaves[index], index, size, path) == root
        assert root_of_path(leaf_hash(b"another"), index, size, path) != root
        assert root_of_path(leaves[index], index, size, [*path, root]) is None
        assert size == 1 or root_of_path(leaves[index], index, size, path[:-1]) is None
    assert root_of_path(leaves[0], size, size, []) is None


@given(st.lists(st.binary(max_size=8), min_size=2, max_size=20), st.data())
def test_another_order_is_another_root(contents: list[bytes], data: st.DataObject) -> None:
    leaves = [leaf_hash(content) for content in contents]
    other = data.draw(st.permutations(leaves))
    assert (tree_root(other) == tree_root(leaves)) == (other == leaves)
