"""The StableHLO reference interpreter as an oracle, in a child process that is replaced when it dies."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

_CHILD = Path(__file__).with_name("reference_child.py")
#: Seconds that one evaluation may take before the child is killed.
_TIMEOUT = 240.0


class ReferenceError(Exception):
    """The interpreter rejected the program or died on it."""


class ReferenceInterpreter:
    """``evaluate`` a module's ``main`` on raw little-endian inputs."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def evaluate(self, module: str, inputs: list[bytes]) -> list[bytes]:
        """Raw bytes of the results. Raises ``ReferenceError``."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        child = self._child
        alarm = threading.Timer(_TIMEOUT, child.kill)
        alarm.start()
        try:
            return self._exchange(child, module, inputs)
        except (BrokenPipeError, struct.error) as error:
            self.close()
            raise ReferenceError("the interpreter ended its process") from error
        finally:
            alarm.cancel()

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _exchange(self, child: subprocess.Popen[bytes], module: str, inputs: list[bytes]) -> list[bytes]:
        assert child.stdin is not None
        assert child.stdout is not None
        header = {"module": module, "types": argument_types(module), "blobs": [len(blob) for blob in inputs]}
        data = json.dumps(header).encode()
        child.stdin.write(struct.pack("<I", len(data)) + data + b"".join(inputs))
        child.stdin.flush()
        (size,) = struct.unpack("<I", child.stdout.read(4))
        reply = json.loads(child.stdout.read(size))
        blobs = [child.stdout.read(length) for length in reply["blobs"]]
        if "error" in reply:
            raise ReferenceError(reply["error"])
        return blobs


def argument_types(module: str) -> list[str]:
    """The tensor types of the arguments of ``main`` as the module's text has them."""
    match = re.search(r"@main\((.*?)\)\s*->", module, re.DOTALL)
    assert match is not None, module
    return [text.strip() for text in re.findall(r"%\w+\s*:\s*(tensor<(?:[^<>]|<[^<>]*>)*>)", match.group(1))]
