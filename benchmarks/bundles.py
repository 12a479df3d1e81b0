"""Export and import of many kernels: python -m benchmarks.bundles [COUNT] [URL ...]

Stores COUNT kernels (500) in SQLite, by publishing one real kernel under COUNT identities, then exports them
to a file and imports the file into an empty store at each URL (a new SQLite file where none is given), in
this process and without gRPC. Prints seconds, bytes, and the outcomes of a second import.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import kcache_compiler
from kcache_compiler.types import CompileOptions
from kcache_grpc.bundle import open_bundle
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.manifest import ArtifactRef, Binding, Manifest, TensorSpec
from kcache_grpc.model.options import Options
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signer, server_id
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.service.bundles.export import Export
from kcache_grpc.service.bundles.importing import Import, Imported
from kcache_grpc.service.bundles.selection import Selection
from kcache_grpc.service.graphs.canonicalizer_upgrade import CanonicalizerUpgrade
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.values import Caller
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import (
    ArtifactDraft,
    GraphDraft,
    KernelDraft,
    KernelRecord,
    Namespace,
    SignedBytes,
    SpecDraft,
)

CANONICALIZER = 1
_PROGRAM = b"""func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.multiply %a, %b : tensor<8x8xf32>
  %r = stablehlo.add %0, %b : tensor<8x8xf32>
  return %r : tensor<8x8xf32> }"""
_TOOLCHAIN = (("llvm", "20.1"), ("pipeline", "p" * 64), ("code", "c" * 64))


def sha256(data: bytes) -> bytes:
    """32 bytes."""
    return hashlib.sha256(data).digest()


def compiled() -> bytes:
    """The shared object of a kernel, as the compiler makes it for x86-64-v3."""
    canonical = kcache_compiler.canonicalize(_PROGRAM, "stablehlo")
    kernel = kcache_compiler.compile_spec(
        canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None
    )
    return kernel.artifacts["so"]


def fill(store: Store, signer: Signer, count: int, code: bytes) -> Namespace:
    """``count`` specs, mappings and kernels with three artifacts each."""
    namespace = store.get_or_create_namespace("default")
    for number in range(count):
        _put(store, signer, namespace, number, code)
    return namespace


def _put(store: Store, signer: Signer, namespace: Namespace, number: int, code: bytes) -> None:
    text = f"kcache.spec v1 default\n%0 = add arg{number}\n" * 20
    digest, program = sha256(text.encode()), sha256(f"program {number}".encode())
    tensors = (TensorSpec("f32", (str(number + 1),)),)
    binding = Binding(
        program, "default", namespace.name, namespace.epoch, 0, digest, tensors, ("",), tensors, (), (), (),
        canonicalizer=CANONICALIZER,
    )  # fmt: skip

    def bind(key: int) -> SignedBytes:
        payload = replace(binding, key=key).to_bytes()
        return SignedBytes(payload, signer.sign(BINDING_DOMAIN, payload).signature)

    stored = store.put_graph(
        namespace, GraphDraft(SpecDraft(digest, text, "default", CANONICALIZER), program, bind)
    )
    contents = {
        "so": code + number.to_bytes(8, "little"),
        "mlir": text.encode() * 4,
        "asm": f"# {number}\n".encode() * 2000,
    }
    artifacts = tuple(ArtifactDraft(kind, sha256(data), data) for kind, data in contents.items())
    manifest = Manifest(
        bytes(32), digest, stored.spec.key, namespace.name, namespace.epoch, CpuTarget("x86-64-v3"),
        Options(), toolchain_digest(_TOOLCHAIN), "", str(tensors[0]), 1, tensors, (), tensors, (), "0", (),
        (), (), tuple(ArtifactRef(a.kind, a.digest, len(a.content)) for a in artifacts), "0",
        datetime.now(timezone.utc), 0.1, _TOOLCHAIN,
    )  # fmt: skip
    manifest = replace(manifest, kernel_digest=manifest.identity.digest)
    identity, payload = manifest.identity, manifest.to_bytes()
    store.publish_kernel(
        namespace,
        KernelDraft(
            KernelRecord(
                identity.digest,
                stored.spec.key,
                identity.arg_spec,
                "",
                identity.target,
                identity.options,
                identity.toolchain_digest,
            ),
            SignedBytes(payload, signer.sign(MANIFEST_DOMAIN, payload).signature),
            artifacts,
            identity.ingredients,
            100_000,
        ),
    )


def import_into(url: str, path: Path, trusted: str) -> tuple[float, float, Counter[str]]:
    """Seconds of an import, seconds of CPU, and outcomes."""
    with open_store(url, migrate=True) as store, open_bundle(path) as bundle:
        signer = Signer.generate()
        imports = Import(
            store, signer, QuotaEviction(store), CanonicalizerUpgrade(store, CANONICALIZER), CANONICALIZER
        )
        started, cpu = time.perf_counter(), time.process_time()
        rejected = imports.check(bundle, [trusted])
        namespace = store.get_or_create_namespace("default")
        outcomes: Counter[str] = Counter()
        for done in imports.store(bundle, namespace, Caller(actor="benchmark"), rejected):
            if not isinstance(done, Imported):
                outcomes.update(f"{entry.kind.label} {entry.outcome}" for entry in done)
        return time.perf_counter() - started, time.process_time() - cpu, outcomes


def main(count: int, urls: list[str]) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        path, signer = Path(folder) / "b.kcb", Signer.generate()
        with open_store(f"sqlite:///{folder}/a.sqlite", migrate=True) as store:
            namespace = fill(store, signer, count, compiled())
            started, cpu = time.perf_counter(), time.process_time()
            with path.open("wb") as file:
                exported = Export(store, signer, namespace, "0").write(Selection(everything=True), file)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        print(f"export: {count} kernels, {exported.size} bytes, {seconds:.2f} s, {cpu:.2f} s of CPU")
        for url in urls or [f"sqlite:///{folder}/b.sqlite"]:
            for which in ("first", "second"):
                seconds, cpu, outcomes = import_into(url, path, server_id(signer.public_key))
                place = url.partition(":")[0]
                print(f"{which} import into {place}: {seconds:.2f} s, {cpu:.2f} s of CPU, {dict(outcomes)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500, sys.argv[2:])
