"""Parts of FX graphs as TORCH programs: the Torch dialect's text, written without torch-mlir."""
