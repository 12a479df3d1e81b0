"""The command as a process: help, usage, signals, serving."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from kcache_grpc import errors, server_extra
from kcache_grpc.cli import exit_codes
from kcache_grpc.cli.app import application
from kcache_grpc.cli.entries import ENTRIES
from kcache_grpc.server_extra import how_to_install
from kcache_grpc.storage import open_store
from tests.cli.command import ROOT, answer, kcache
from tests.cli.conftest import Run
from tests.serving import ServerProcess
from tests.storage.drafts import graph, kernel, program, sha256

COMMANDS = ("serve", "compile", "run", "lookup", "show", "stats", "migrate", "doctor")
#: What no help text needs.
HEAVY = ("numpy", "grpc", "google.protobuf", "sqlalchemy", "torch_mlir", "cffi", "cryptography")


def test_every_error_has_a_code_of_its_own() -> None:
    assert set(exit_codes.CODES) == set(errors.WIRE_FORMS)
    codes = [*exit_codes.CODES.values(), exit_codes.OK, exit_codes.USAGE, exit_codes.INTERRUPTED]
    assert len(set(codes)) == len(codes)
    assert exit_codes.code_of(type("Later", (errors.NotFound,), {})("x")) == 9


def test_help_names_commands_and_codes(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert all(command in text for command in COMMANDS)
    assert "13 Unavailable" in text


@pytest.mark.parametrize("words", [(), ("cache",), ("bundle",), ("audit",)], ids=str)
def test_without_a_command_the_help_is_printed(run: Run, words: tuple[str, ...]) -> None:
    bare, asked = run(*words), run(*words, "--help")
    assert (bare.code, bare.out, bare.err) == (exit_codes.USAGE, asked.out, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.code == 0
    assert "Usage: kcache" in done.out


def test_help_loads_little() -> None:
    program = f"""
import sys
from kcache_grpc.cli import main
assert main(["compile", "--help"]) == 0
sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240, cwd=ROOT
    )
    assert done.stderr == ""


def test_help_lists_what_the_commands_say_of_themselves(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of ``kcache --help`` come from a table, so that no command is imported for it."""
    lazy = run("--help").out
    complete = typer.main.get_command(application())
    assert complete(["--help"], prog_name="kcache", standalone_mode=False) == 0
    assert lazy == capsys.readouterr().out
    assert list(complete.commands) == list(ENTRIES)


def test_only_the_command_that_runs_is_imported() -> None:
    program = """
import sys
from kcache_grpc.cli import main
from kcache_grpc.cli.entries import ENTRIES
modules = {entry.module for entry in ENTRIES.values()}
assert main(["--help"]) == 0
assert not modules & set(sys.modules), modules & set(sys.modules)
assert "rich" not in sys.modules
assert main(["cache", "info", "--help"]) == 0
assert modules & set(sys.modules) == {ENTRIES["cache"].module}, modules & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=240, cwd=ROOT)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", ENTRIES)
def test_a_command_has_one_help(run: Run, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Imported alone or with all others."""
    alone = run(name, "--help").out
    complete = typer.main.get_command(application())
    assert complete([name, "--help"], prog_name="kcache", standalone_mode=False) == 0
    assert alone == capsys.readouterr().out


def test_a_misspelled_command(run: Run) -> None:
    done = run("compil", "x")
    assert done.code == 2
    assert "No such command 'compil'. Did you mean 'compile'?" in done.err


def test_version() -> None:
    done = kcache("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("kcache ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["compile"],
        ["compile", "x", "--no-such-option"],
        ["show", "three"],
        ["compile", "x", "-o", "y"],
        ["compile", "x", "--emit", "exe", "-o", "y"],
        ["run", "x", "--repeat", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert "--help" in done.err
    assert run(*arguments, "--json").error()["message"]


def test_completion_knows_commands_and_targets() -> None:
    for words, expected in (("kcache com", "compile"), ("kcache compile x --target x86-64-v", "x86-64-v4")):
        done = kcache(
            _KCACHE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
        )
        assert expected in done.stdout.split()


def test_a_reader_that_goes_away(server: ServerProcess, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kcache_grpc", "stats", "--addr", server.address]
    environment = {**os.environ, "KCACHE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        command,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


def test_an_interrupt_is_130(tmp_path: Path) -> None:
    """While it waits for a server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(240)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        # Processes begun in the background of a shell ignore interrupts, and so would their children. One
        # process more sets that right: what other tests loaded into this one may not survive a fork.
        listens = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        listens += "os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", listens, sys.executable, "-m", "kcache_grpc", "stats"]
        command += ["--addr", address, "--cache-dir", str(tmp_path)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in complaint


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    ready, service = tmp_path / "ready.json", tmp_path / "run" / "kcache.sock"
    state = ("--db", f"sqlite:///{tmp_path}/k.sqlite", "--state-dir", str(tmp_path / "state"))
    places = ("--listen", "127.0.0.1:0", "--socket", str(service), "--ready-file", str(ready))
    command = [sys.executable, "-m", "kcache_grpc", "serve", *state, *places, "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert f"unix:{service}" in told["addresses"]
    assert answer(kcache("doctor", "--health", "--json", "--addr", f"unix:{service}"))["healthy"]
    assert json.loads(ready.read_text()) == told
    process.send_signal(number)
    _, log = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "Traceback" not in log
    assert not ready.exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--listen", "0.0.0.0:0"], 12, "--insecure"),
        (["--listen", "nowhere"], 5, "host:port"),
        (["--tls-cert", "cert.pem"], 5, "tls_key"),
        (["--token-file", "missing"], 9, "token file missing"),
        (["--log-format", "xml"], 5, "text or json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_serve_rejects(tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    state = (
        "--db",
        f"sqlite:///{tmp_path}/k.sqlite",
        "--state-dir",
        tmp_path,
        "--socket",
        tmp_path / "run" / "s",
    )
    done = kcache("serve", *state, *arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_migrate_makes_a_store_and_leaves_a_foreign_file_alone(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kcache.sqlite"
    for _ in range(2):
        assert run("migrate", "--db", url, "--json").json() == {"db": url, "migrated": True}
    assert "schema" in run("migrate", "--db", url).out
    foreign = tmp_path / "foreign.sqlite"
    foreign.write_text("somebody's diary, surely no database at all" * 10)
    rejected = run("migrate", "--db", f"sqlite:///{foreign}")
    assert rejected.code not in (0, 2)
    assert "diary" in foreign.read_text()


def test_a_store_leaves_its_object_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, objects = f"sqlite:///{tmp_path}/kcache.sqlite", f"file://{tmp_path}/objects"
    with open_store(url, migrate=True, objects=objects, inline_bytes=0) as store:
        ns = store.get_or_create_namespace("default")
        store.put_graph(ns, graph(0, [b"weights"]))
        store.publish_kernel(ns, kernel(0))
    command = ["migrate", "--db", url, "--objects-into-rows", "--json"]
    monkeypatch.delenv("KCACHE_OBJECTS", raising=False)
    assert objects in run(*command).err
    monkeypatch.setenv("KCACHE_OBJECTS", objects)
    assert "a separate command" in run(*command, "--from", url).err
    size = len(b"weights") + len(b"object 0") + len(b"shared IR")
    planned = {"blobs": 3, "blob_bytes": size, "lost": 0, "dry_run": True}
    assert [run(*command, "--dry-run").json() for _ in range(2)] == [planned] * 2
    assert run(*command).json() == {"blobs": 3, "blob_bytes": size, "lost": 0}
    assert run(*command).json() == {"blobs": 0, "blob_bytes": 0, "lost": 0}
    shutil.rmtree(tmp_path / "objects")
    with open_store(url) as store:
        assert store.read_artifact(ns, sha256(b"object 0")) == b"object 0"
        assert store.find_mapping(ns, program(0), "default") is not None


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_the_base_install_says_what_to_install(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_extra, "find_spec", lambda name: None if name == "sqlalchemy" else object())
    done = run(command)
    assert done.code == 9
    assert "pip install 'kcache-grpc[server]'" in done.err
    assert "sqlalchemy" in done.err


def test_the_python_that_the_server_needs_is_named() -> None:
    assert how_to_install((3, 10)).startswith(
        "with Python 3.11 or later, which the server needs (this is 3.10), "
    )
    assert how_to_install((3, 11)) == how_to_install((3, 14)) == "run: pip install 'kcache-grpc[server]'"


def test_a_bug_is_one_paragraph(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[str]:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(server_extra, "missing_extra", broken)
    done = run("migrate")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "out of cheese (this is a bug in kcache; --debug shows where)" in done.err
    assert "Traceback" in run("migrate", "--debug").err


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    for arguments in ("--version", "show 1 --json"):
        command = f"exec {sys.executable} -m kcache_grpc {arguments} <&- >&- 2>&-"
        environment = {**os.environ, "KCACHE_ADDR": "127.0.0.1:1", "KCACHE_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(["sh", "-c", command], timeout=240, cwd=ROOT, env=environment, check=False)
        assert done.returncode == (0 if arguments == "--version" else exit_codes.CODES[errors.Unavailable])
