"""The groups of dims of a reshape, by size."""

from __future__ import annotations

from collections.abc import Sequence


def reshape_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Cut both lists of dims, those of size 1 aside, wherever the products before the cut agree.

    ``old`` and ``new`` are sizes of equal product. Where one is 0, ``only_ones_differ`` must hold.
    """
    ins = [d for d, size in enumerate(old) if size != 1]
    outs = [d for d, size in enumerate(new) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(ins):
        group = ([ins[i]], [outs[j]])
        have, want = old[ins[i]], new[outs[j]]
        while have != want:
            if have < want:
                i += 1
                group[0].append(ins[i])
                have *= old[ins[i]]
            else:
                j += 1
                group[1].append(outs[j])
                want *= new[outs[j]]
        groups.append(group)
        i, j = i + 1, j + 1
    return groups


def only_ones_differ(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether two lists of sizes are one, those of size 1 aside."""
    return [size for size in old if size != 1] == [size for size in new if size != 1]
