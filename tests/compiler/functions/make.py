"""Writes ``exported``: ``python -m tests.compiler.functions.make`` (minutes; needs jax, torch and onnx)."""

from __future__ import annotations

from pathlib import Path

from tests.compiler.functions import in_jax, in_onnx, in_torch

EXPORTED = Path(__file__).with_name("exported")


def main() -> None:
    for framework, texts in (("jax", in_jax.texts()), ("torch", in_torch.texts()), ("onnx", in_onnx.texts())):
        for name, text in texts.items():
            function, _, form = name.partition(".")
            path = EXPORTED / f"{function}.{framework}{'.' if form else ''}{form}.mlir"
            path.write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
