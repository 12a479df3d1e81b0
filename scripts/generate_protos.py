"""Code generated from protos/: written, proven fresh, proven compatible with the last release.

    python scripts/generate_protos.py write            (make proto)
    python scripts/generate_protos.py check            (part of make check)
    python scripts/generate_protos.py release VERSION  (make release-protos VERSION=...)

Runs in an environment made from scripts/proto-requirements.txt. Exit code 1: something is stale, badly
formed or incompatible; the output says what.

The wheel must not claim the top-level name ``kcache``, so generated modules live under
``kcache_grpc._proto`` and import each other by that name. Names inside the descriptors stay ``kcache.v1``.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_stubs import stub_text

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "protos"
GENERATED = ROOT / "kcache_grpc" / "_proto"
RELEASED = SOURCES / "released"
PACKAGE = "kcache_grpc._proto"
INIT_TEXT = '"""Generated from protos/ by `make proto`; not edited by hand."""\n'

IMPORT = re.compile(r"^from kcache(\.[\w.]+) import ", re.MULTILINE)


def main() -> int:
    """Run the subcommand of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write")
    commands.add_parser("check")
    commands.add_parser("release").add_argument("version")
    arguments = parser.parse_args()
    match arguments.command:
        case "write":
            return write()
        case "check":
            return max(check_fresh(), check_lint(), check_compatible())
        case _:
            return release(arguments.version)


def write() -> int:
    """Replace the committed code by what the sources say now."""
    with tempfile.TemporaryDirectory() as directory:
        fresh = generate(Path(directory))
        wanted = files_under(fresh)
        for left_over in files_under(GENERATED) - wanted:
            (GENERATED / left_over).unlink()
        for path in wanted:
            (GENERATED / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / path, GENERATED / path)
    print(f"wrote {len(list(GENERATED.rglob('*_pb2*')))} modules to {GENERATED.relative_to(ROOT)}")
    return 0


def check_fresh() -> int:
    """1 when a committed file differs from what the sources give, is missing, or is left over."""
    with tempfile.TemporaryDirectory() as directory:
        fresh = generate(Path(directory))
        wanted, present = files_under(fresh), files_under(GENERATED)
        common = sorted(wanted & present)
        stale = sorted(wanted ^ present)
        stale += [path for path in common if not filecmp.cmp(fresh / path, GENERATED / path, shallow=False)]
    for path in stale:
        print(f"stale: {GENERATED.relative_to(ROOT) / path} (run `make proto`)")
    print("generated code: " + ("stale" if stale else "fresh"))
    return int(bool(stale))


def check_lint() -> int:
    """1 when the sources break the rules in protos/buf.yaml."""
    return buf("lint", str(SOURCES))


def check_compatible() -> int:
    """1 when the sources break what the last release promised on the wire or in generated code."""
    baselines = sorted(RELEASED.glob("*.binpb"), key=release_order)
    if not baselines:
        print("protos: no release yet, nothing to be compatible with")
        return 0
    baseline = baselines[-1]
    with tempfile.TemporaryDirectory() as directory:
        current = Path(directory) / "current.binpb"
        run_protoc([f"--descriptor_set_out={current}", "--include_imports", "--include_source_info"])
        rules = str(SOURCES / "buf.yaml")
        images = [str(current), "--against", str(baseline), "--exclude-imports"]
        code = buf("breaking", *images, "--config", rules, "--against-config", rules)
    print(f"protos: {'BREAK' if code else 'compatible with'} release {baseline.stem}")
    return int(code != 0)


def release(version: str) -> int:
    """Keep the sources' descriptors as what release ``version`` promised; never overwrites."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SystemExit(f"not a version: {version}")
    target = RELEASED / f"{version}.binpb"
    if target.exists():
        raise SystemExit(f"{target.relative_to(ROOT)} exists: a released interface does not change")
    RELEASED.mkdir(exist_ok=True)
    run_protoc([f"--descriptor_set_out={target}", "--include_imports"])
    print(f"wrote {target.relative_to(ROOT)}")
    return 0


def generate(directory: Path) -> Path:
    """Generate everything into ``directory`` and return the root of the package tree in it."""
    raw = directory / "raw"
    raw.mkdir()
    descriptors = directory / "set.binpb"
    outputs = [f"--python_out={raw}", f"--pyi_out={raw}", f"--grpc_python_out={raw}"]
    run_protoc([*outputs, f"--descriptor_set_out={descriptors}", "--include_imports"])
    described = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
    for file in described.file:
        stub = raw / file.name.replace(".proto", "_pb2_grpc.py")
        if not stub.exists():
            continue
        if file.service:
            stub.with_suffix(".pyi").write_text(stub_text(file, described, PACKAGE))
        else:
            stub.unlink()
    for module in raw.rglob("*.py*"):
        module.write_text(IMPORT.sub(rf"from {PACKAGE}.kcache\1 import ", module.read_text()))
    for package in [raw, *(path for path in raw.rglob("*") if path.is_dir())]:
        (package / "__init__.py").write_text(INIT_TEXT)
    return raw


def run_protoc(options: list[str]) -> None:
    """Run the pinned protoc over every source; exits when it rejects one."""
    sources = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / "kcache").rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCES}", *options, *sources]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit("protoc rejected the sources")


def buf(*arguments: str) -> int:
    """Run buf and return its exit status."""
    executable = Path(sysconfig.get_path("scripts")) / "buf"
    return subprocess.run([str(executable), *arguments], check=False, cwd=ROOT).returncode


def files_under(root: Path) -> set[Path]:
    """Files below ``root``, relative to it, bytecode apart."""
    if not root.exists():
        return set()
    return {
        path.relative_to(root)
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".proto"
    }


def release_order(path: Path) -> tuple[int, ...]:
    """Sort key of a released descriptor file: its version, by number."""
    return tuple(int(part) for part in path.stem.split("."))


if __name__ == "__main__":
    sys.exit(main())
