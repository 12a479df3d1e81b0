"""Bytecode that is almost right, for readers that expect it to be; and a run of it through a pool of workers.

``python -m tests.worker.mutations --count 20000 --seed 1`` prints what became of so many.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kcache_compiler.mlir import context as mlir
from kcache_grpc.errors import CompileFailed, KcacheError
from kcache_grpc.worker import WorkerPool, WorkerSettings, codec

_TEXTS = {
    "stablehlo": (
        """func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %e = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %f = stablehlo.add %d, %e : tensor<4x4xf32>
  return %f : tensor<4x4xf32> }""",
        """func.func @main(%a: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<8x4xi1>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %c = stablehlo.compare GT, %t, %t : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xi1>
  return %s, %c : tensor<4xf32>, tensor<8x4xi1> }""",
        """func.func @main(%n: tensor<i32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<8xf32>
    cond { %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.tanh %v : tensor<8xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<8xf32> }
  return %r#1 : tensor<8xf32> }""",
    ),
    "linalg": (
        """func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x4xf32>)
    outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %m : tensor<4x4xf32> }""",
    ),
    "torch": (
        """func.func @main(%a: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %i = torch.constant.int 1
  %s = torch.aten.add.Tensor %a, %a, %i : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>, !torch.int
    -> !torch.vtensor<[4,8],f32>
  %t = torch.aten.tanh %s : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %t : !torch.vtensor<[4,8],f32> }""",
    ),
}
#: One valid program for so many mutated ones.
_INNOCENT_EVERY = 20
_NUMERICS = "default"
_SECONDS = 60.0


@dataclass
class Outcome:
    """What became of a run. ``harmed`` describes valid programs that failed, or came out different."""

    programs: int = 0
    innocent: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])
    harmed: list[str] = field(default_factory=list[str])
    worker_restarts: int = 0
    slowest_seconds: float = 0.0


def seeds() -> list[tuple[str, bytes]]:
    """Valid bytecode with its format: modules, and StableHLO's portable artifacts."""
    programs: list[tuple[str, bytes]] = []
    for format, texts in _TEXTS.items():
        for text in texts:
            module = mlir.parse_module(text, mlir.new_context())
            written = io.BytesIO()
            module.operation.write_bytecode(written)
            programs.append((format, written.getvalue()))
            if format == "stablehlo":
                version = mlir.artifact_versions()[1]
                artifact = mlir.native_stablehlo().serialize_portable_artifact(module, version)
                programs.append((format, bytes(artifact)))
    return programs


def mutated(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """``count`` programs with their formats; the same ones for the same ``seed``."""
    choices = random.Random(seed)
    valid = seeds()
    for _ in range(count):
        format, body = choices.choice(valid)
        yield format, _mutate(body, choices, [other for _, other in valid])


def _mutate(body: bytes, choices: random.Random, others: list[bytes]) -> bytes:
    changed = bytearray(body)
    for _ in range(choices.choice((1, 1, 1, 2, 4, 16))):
        start = choices.randrange(4, len(changed))  # what begins otherwise is no bytecode
        length = choices.choice((1, 1, 2, 4, 8, 32))
        match choices.randrange(7):
            case 0:
                changed[start] ^= 1 << choices.randrange(8)
            case 1:
                changed[start] = choices.randrange(256)
            case 2:
                changed[start : start + length] = choices.randbytes(length)
            case 3:
                del changed[start : start + length]
            case 4:
                changed[start:start] = changed[start : start + length]
            case 5:
                changed[start : start + 1] = choices.choice(
                    (b"\x00", b"\xff", b"\x01", b"\x00" + b"\xff" * 8)
                )
            case _:
                other = choices.choice(others)
                place = choices.randrange(len(other))
                changed[start : start + length] = other[place : place + length]
        if len(changed) < 8:
            break
    return bytes(changed)


async def run(count: int, seed: int, at_once: int = 2) -> Outcome:
    """Sends ``count`` mutated programs through a pool, with valid ones between them."""
    outcome = Outcome()
    innocent = [(format, text.encode()) for format, texts in _TEXTS.items() for text in texts] + seeds()
    pool = WorkerPool(1, settings=WorkerSettings(memory_bytes=4 << 30))
    await pool.start()
    try:
        expected = [await _read(pool, *program) for program in innocent]
        programs = enumerate(mutated(count, seed))

        async def work() -> None:
            for number, program in programs:
                outcome.answers[await _answer(pool, *program, outcome)] += 1
                outcome.programs += 1
                if number % _INNOCENT_EVERY == 0:
                    which = (number // _INNOCENT_EVERY) % len(innocent)
                    outcome.innocent += 1
                    try:
                        digest = await _read(pool, *innocent[which])
                    except KcacheError as error:
                        digest = str(error)
                    if digest != expected[which]:
                        outcome.harmed.append(f"program {which} after {number}: {digest}")

        await asyncio.gather(*(work() for _ in range(at_once)))
        outcome.worker_restarts = pool.restarts
    finally:
        await pool.close()
    return outcome


async def _read(pool: WorkerPool, format: str, body: bytes) -> str:
    job = codec.canonicalize_job(body, format, _NUMERICS, {}, _SECONDS)
    return codec.decode_canonical(await pool.canonicalize(job, _SECONDS)).spec_digest.hex()


async def _answer(pool: WorkerPool, format: str, body: bytes, outcome: Outcome) -> str:
    started = time.monotonic()
    try:
        await _read(pool, format, body)
    except CompileFailed as error:
        return f"{error.reason} {error.metadata.get('signal', 'in Python')} in {error.stage}"
    except KcacheError as error:
        return error.reason
    finally:
        outcome.slowest_seconds = max(outcome.slowest_seconds, time.monotonic() - started)
    return "OK"


def main() -> None:
    """Prints the outcome as JSON; exits with 1 if a valid program was harmed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    outcome = asyncio.run(run(chosen.count, chosen.seed))
    print(json.dumps(vars(outcome), indent=2))
    raise SystemExit(bool(outcome.harmed or outcome.worker_restarts))


if __name__ == "__main__":
    main()
