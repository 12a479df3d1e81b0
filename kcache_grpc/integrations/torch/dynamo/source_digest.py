"""temp"""

import hashlib

import torch


class NotDigestible(Exception):
    pass


def source_digest(gm, inputs, extra):
    t = (
        gm.print_readable(print_output=False, include_stride=True)
        + repr(
            [
                (tuple(i.shape), i.stride(), i.dtype, i.requires_grad) if isinstance(i, torch.Tensor) else i
                for i in inputs
            ]
        )
        + repr(sorted(extra.items()))
        + str(torch.is_grad_enabled())
    )
    return hashlib.sha256(t.encode()).digest()
