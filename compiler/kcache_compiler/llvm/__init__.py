"""LLVM: targets, version compatibility, optimization, emission, linking, and checks of ELF files and PTX."""
