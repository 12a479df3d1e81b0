"""Hits in memory."""

from __future__ import annotations

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import HitStore
from kcache_grpc.storage.memory.blobs import MemoryBlobs
from kcache_grpc.storage.memory.graphs import MemoryGraphs
from kcache_grpc.storage.memory.kernels import MemoryKernels
from kcache_grpc.storage.records import LoadedGraph, LoadedKernel, Namespace, Wanted


class MemoryHits(MemoryGraphs, MemoryBlobs, MemoryKernels, HitStore):
    """``HitStore`` in memory."""

    def load_graph(
        self, namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted
    ) -> LoadedGraph | None:
        checks.number("most", wanted.most)
        sort = (wanted.target, wanted.options, wanted.toolchain)
        with self._state as state:
            mapping = self.find_mapping(namespace, program_digest, numerics)
            if mapping is None:
                return None
            here = (namespace.id, namespace.epoch)
            kernels = [each.kernel for name, each in state.kernels.items() if name[:2] == here]
            of_key = [each for each in kernels if each.key == mapping.key]
            fit = [each for each in of_key if (each.target, each.options, each.toolchain) == sort]
            only = self.load_kernel(namespace, fit[0].kernel_digest, wanted) if len(fit) == 1 else None
            return LoadedGraph(mapping, only)

    def load_kernel(self, namespace: Namespace, kernel_digest: bytes, wanted: Wanted) -> LoadedKernel | None:
        checks.number("most", wanted.most)
        with self._state:
            stored = self.find_kernel(namespace, kernel_digest)
            if stored is None:
                return None
            refs = [ref for ref in stored.artifacts if ref.kind in wanted.kinds and ref.size <= wanted.most]
            read = {ref.digest: self.read_artifact(namespace, ref.digest) for ref in refs}
        contents = {digest: content for digest, content in read.items() if content is not None}
        return LoadedKernel(stored, contents)
