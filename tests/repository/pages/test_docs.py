"""Tables of the pages against the code: errors, settings, limits, exit codes, commands."""

from __future__ import annotations

import re

import pytest
import typer

from kcache_compiler.frontends.limits import Limits as CompilerLimits
from kcache_grpc import errors
from kcache_grpc.cli import exit_codes
from kcache_grpc.cli.app import application
from kcache_grpc.client.config import from_environment
from kcache_grpc.runtime.cpu import library
from kcache_grpc.server.config import LIMIT_VARIABLES, ServerConfig
from kcache_grpc.service.values import Limits
from tests.repository.sources import PACKAGES, ROOT

REFERENCE = ROOT / "docs" / "reference"
SETTINGS = (REFERENCE / "settings.md").read_text()
EXIT_CODES = (REFERENCE / "exit-codes.md").read_text()
ERRORS = (REFERENCE / "errors.md").read_text()
WIRE_API = (REFERENCE / "wire-api.md").read_text()
#: The protos that define services.
SERVICES = [
    path for path in sorted((ROOT / "protos/kcache/v1").glob("*.proto")) if "\nservice " in path.read_text()
]


def rows(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose first line begins with ``head``."""
    table = page[page.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_table_of_errors_is_that_of_the_code():
    table = {reason.strip("`"): cells for reason, *cells in rows(ERRORS, "| reason |")}
    forms = {form.reason: (cls, form) for cls, form in errors.WIRE_FORMS.items()}
    assert set(table) == set(forms) | set(errors.EXTRA_REASONS)
    for reason, (cls, form) in forms.items():
        code, exception, retry = table[reason]
        assert (code, exception.strip("`")) == (form.code, cls.__name__)
        assert retry.startswith("yes") is form.retryable
    for reason, cls in errors.EXTRA_REASONS.items():
        assert table[reason][:2] == [errors.WIRE_FORMS[cls].code, f"`{cls.__name__}`"]


def test_transport_codes_worth_a_retry_are_those_of_the_code():
    sentence = re.search(r"Clients should retry ([\s\S]*?)\.", ERRORS)
    assert sentence is not None
    named = set(re.findall(r"[A-Z_]{5,}", sentence[1]))
    assert named == {code for code, cls in errors.TRANSPORT_CODES.items() if cls is errors.Unavailable}


def test_every_setting_is_documented_and_every_documented_one_exists():
    documented = set(re.findall(r"`(KCACHE_[A-Z_]+[A-Z])`", SETTINGS))
    assert documented == settings_of_the_code()


def settings_of_the_code() -> set[str]:
    server = {f"KCACHE_{flag[2:].upper().replace('-', '_')}" for flag in flags_of("serve")}
    # The token itself is in the environment, its file on the command line.
    server = server - {"KCACHE_TOKEN_FILE", "KCACHE_DEBUG", "KCACHE_HELP"} | set(LIMIT_VARIABLES)
    sources = [path for folder in PACKAGES.values() for path in folder.rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"KCACHE_[A-Z_]+[A-Z]", path.read_text())}
    return server | {"KCACHE_TOKEN", "KCACHE_READY_FILE"} | named


def flags_of(command: str) -> set[str]:
    parser = typer.main.get_command(application()).commands[command]
    return {flag for option in parser.params for flag in option.opts if flag.startswith("--")}


def test_every_flag_of_serve_reads_its_variable(tmp_path):
    for variable, value in (("KCACHE_MIGRATE", "1"), ("KCACHE_DISOWN", "yes"), ("KCACHE_GRACE", "2")):
        environment = {"KCACHE_STATE_DIR": str(tmp_path), variable: value}
        name = variable.removeprefix("KCACHE_").lower()
        assert getattr(ServerConfig.from_env(environment), name) in (True, 2.0)


def test_defaults_are_those_of_the_code(tmp_path):
    table = {cells[0].strip("`"): cells[-1] for cells in rows(SETTINGS, "| variable of the server |")}
    config = ServerConfig.from_env({"KCACHE_STATE_DIR": str(tmp_path)})
    assert table["KCACHE_LISTEN"] == f"`{','.join(config.listen)}`"
    assert table["KCACHE_GRACE"] == f"{config.grace:g}"
    assert table["KCACHE_LEASE_TTL"] == f"{config.lease_ttl:g}"
    assert table["KCACHE_FAILURE_TTL"] == f"{config.failure_ttl:g}"
    assert (
        table["KCACHE_SPOOL_BYTES`, `KCACHE_SPOOL_TTL"]
        == f"{config.spool_bytes >> 30} GiB; {config.spool_ttl:g}"
    )
    assert table["KCACHE_MAX_CONCURRENT"] == str(config.max_concurrent)
    assert table["KCACHE_WORKER_MEMORY"] == f"{config.worker.memory_bytes >> 30} GiB"
    assert table["KCACHE_LOG_FORMAT"] == f"`{config.log_format}`"
    client = {cells[0].strip("`"): cells[-1] for cells in rows(SETTINGS, "| variable of the client |")}
    assert client["KCACHE_TIMEOUT"] == f"{from_environment(environment={}).timeout:g}"
    assert client["KCACHE_NAMESPACE"] == f"`{from_environment(environment={}).namespace}`"


def test_limits_are_those_of_the_code():
    limits, compiler = Limits(), CompilerLimits()
    stated = {cells[0]: cells[1] for cells in rows(SETTINGS, "| limit |")}
    assert list(stated.values())[:10] == [
        f"{limits.program_bytes >> 20} MiB",
        f"{limits.inline_program_bytes >> 20} MiB",
        str(limits.operations),
        str(limits.nesting),
        str(limits.queries),
        f"{limits.inline_artifact_bytes >> 20} MiB",
        f"{limits.normalize_seconds:g}",
        f"{limits.compile_seconds:g}",
        f"{limits.default_deadline_seconds:g}",
        str(limits.namespaces),
    ]
    fixed = SETTINGS[SETTINGS.index("Fixed, in `compiler/") :].split("\n\n")[0].replace("\n", " ")
    for text in (
        f"nested brackets {compiler.bracket_depth}",
        f"nested calls {compiler.call_depth}",
        f"elements of a tensor 2^{compiler.tensor_elements.bit_length() - 1}",
        f"rank {compiler.rank}",
        f"bytes of all constants {compiler.constant_bytes >> 20} MiB",
        f"attributes 2^{compiler.attribute_characters.bit_length() - 1}",
        f"results {compiler.arguments} each",
    ):
        assert text in fixed


def test_exit_codes_are_those_of_the_code():
    cells = [cell for row in rows(EXIT_CODES, "| code | meaning |") for cell in row if cell]
    table = dict(zip(cells[::2], cells[1::2], strict=True))
    for cls, code in exit_codes.CODES.items():
        if code != exit_codes.ERROR:
            assert table[str(code)] == f"`{cls.__name__}`"
    assert len(table) == len(exit_codes.CODES) + 2
    assert f"{exit_codes.INTERRUPTED} means interrupted" in EXIT_CODES


def test_the_changelog_names_the_commands_that_there_are():
    commands = set(typer.main.get_command(application()).commands)
    line = re.search(r"Command line `kcache`: ([\s\S]*?)\.", (ROOT / "CHANGELOG.md").read_text())
    assert line is not None
    assert set(re.findall(r"`(\w+)`", line[1])) == commands


def test_the_reserved_error_code_and_version_of_the_abi_are_those_of_the_code():
    page = (ROOT / "docs" / "reference" / "c-abi.md").read_text()
    assert f"{library.SIZES_DISAGREE} always means" in page
    assert page.startswith(f"# C ABI of a CPU kernel, versions {' and '.join(map(str, library.ABIS))}")


@pytest.mark.parametrize("proto", SERVICES, ids=lambda path: path.stem)
def test_the_wire_page_names_every_method(proto):
    """In the section of its service, except for those of ``KernelCache``, which come before it."""
    for service, body in re.findall(r"^service (\w+) \{([\s\S]*?)^\}", proto.read_text(), re.MULTILINE):
        methods = set(re.findall(r"rpc (\w+)\(", body))
        assert methods
        section, head = WIRE_API, f"### {service}\n"
        if service != "KernelCache":
            section = WIRE_API[WIRE_API.index(head) + len(head) :].split("\n##")[0]
        assert {method for method in methods if f"`{method}`" not in section} == set()
