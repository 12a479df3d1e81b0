"""The groups of dims with equal products that a reshape maps to each other."""

from __future__ import annotations

from collections.abc import Sequence


def reshape_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of dims with equal products, in order; dims of size 1 are left out.

    ``old`` and ``new`` are sizes of equal product. Where one is 0, ``only_ones_differ`` must hold.
    """
    ins = [d for d, size in enumerate(old) if size != 1]
    outs = [d for d, size in enumerate(new) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(ins):
        group = ([ins[i]], [outs[j]])
        left, right = old[ins[i]], new[outs[j]]
        while left != right:
            if left < right:
                i += 1
                group[0].append(ins[i])
                left *= old[ins[i]]
            else:
                j += 1
                group[1].append(outs[j])
                right *= new[outs[j]]
        groups.append(group)
        i, j = i + 1, j + 1
    return groups


def only_ones_differ(old: Sequence[int], new: Sequence[int]) -> bool:
    """Return whether two lists of sizes are equal except for sizes 1."""
    return [size for size in old if size != 1] == [size for size in new if size != 1]
