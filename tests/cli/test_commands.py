"""Commands that talk to a service."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from kcache_grpc import Client, cli, errors
from kcache_grpc.cli.commands.compile import Stages
from tests.cli.command import ADD, ADD_RENAMED, UNSUPPORTED, answer, kcache
from tests.cli.conftest import Run
from tests.serving import ServerProcess


def program(tmp_path: Path, rows: int, name: str = "program.mlir") -> Path:
    """The sum of two f32[rows,8]: each test has a kernel of its own."""
    path = tmp_path / name
    path.write_text(ADD.replace("4x8", f"{rows}x8"))
    return path


def test_compiled_once_by_whoever_comes_first(server: ServerProcess, tmp_path: Path) -> None:
    """Three processes: one compiles, one with an empty cache gets it, one has it on disk."""
    file, renamed = program(tmp_path, 11), tmp_path / "renamed.mlir"
    renamed.write_text(ADD_RENAMED.replace("4x8", "11x8"))
    origins = []
    for path, cache in ((file, "one"), (file, "two"), (file, "two"), (renamed, "two")):
        arguments = ("compile", path, "--json", "--addr", server.address, "--cache-dir", tmp_path / cache)
        compiled = answer(kcache(*arguments))
        origins.append((compiled["origin"], compiled["key"]))
    key = origins[0][1]
    assert origins == [("compiled", key), ("remote", key), ("disk", key), ("remote", key)]


def test_compile_says_what_it_made(served: Run, tmp_path: Path) -> None:
    compiled = served(
        "compile", program(tmp_path, 12), "--json", "--target", "x86-64-v2", "--opt-level", "1"
    ).json()
    assert compiled["target"] == "x86-64-v2"
    assert compiled["options"] == "numerics=default opt_level=1 tuning=generic"
    assert list(compiled["inputs"].values()) == ["f32[12,8]", "f32[12,8]"]
    assert compiled["outputs"] == ["f32[12,8]"]
    assert len(bytes.fromhex(compiled["spec_digest"])) == len(bytes.fromhex(compiled["kernel_digest"])) == 32
    stages = [stage for entry in compiled["stages"] for stage in entry["stages"]]
    assert len(stages) > 5
    assert (stages[0], stages[-1]) == ("send", "receive")
    assert all(entry["seconds"] > 0 for entry in compiled["stages"])


def test_stages_of_one_message_share_its_seconds() -> None:
    stages = Stages()
    for stage, at in (("queued", 0.25), ("import", 0.75), ("lower", 0.75), ("object", 0.75)):
        stages.report(stage, at)
    stages.report("object", 1.25)  # a heartbeat
    for stage in ("link", "publish", "receive"):
        stages.report(stage, 1.75)
    stages.finish(0.5)
    assert stages.groups == [
        {"stages": ["send"], "seconds": 0.25},
        {"stages": ["queued", "import", "lower"], "seconds": 0.5},
        {"stages": ["object", "link", "publish"], "seconds": 1.0},
        {"stages": ["receive"], "seconds": 0.5},
    ]


def test_what_was_found_has_no_stages() -> None:
    stages = Stages()
    stages.finish(0.5)
    assert stages.groups == []


def test_compile_for_people(served: Run, tmp_path: Path) -> None:
    done = served("compile", program(tmp_path, 13))
    assert done.code == 0
    assert "compiled" in done.out
    assert "f32[13,8]" in done.out
    assert done.err == ""


@pytest.mark.parametrize(("kind", "begins"), [("so", b"\x7fELF"), ("mlir", b""), ("llvm", b""), ("asm", b"")])
def test_artifacts_in_files(
    served: Run, server: ServerProcess, tmp_path: Path, kind: str, begins: bytes
) -> None:
    file, target = program(tmp_path, 14), tmp_path / f"kernel.{kind}"
    compiled = served("compile", file, "--emit", kind, "-o", target, "--json").json()
    content = target.read_bytes()
    assert content.startswith(begins)
    assert compiled["written"] == str(target)
    assert compiled["artifacts"][kind] == len(content)
    with Client(server.address, cache_dir=tmp_path / "other") as client:
        ref = client.compile(file).manifest.artifact(kind)
    assert ref is not None
    assert ref.sha256 == hashlib.sha256(content).digest()


def test_artifacts_on_standard_output(
    server: ServerProcess, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = ["compile", str(program(tmp_path, 14)), "--addr", server.address, "--emit"]
    assert cli.main([*arguments, "asm"]) == 0
    assert b"kcache_run" in capsysbinary.readouterr().out
    assert cli.main([*arguments, "so"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"\x7fELF")


def test_a_program_from_standard_input(server: ServerProcess, tmp_path: Path) -> None:
    arguments = ("compile", "-", "--json", "--addr", server.address, "--cache-dir", tmp_path)
    assert answer(kcache(*arguments, stdin=ADD.replace("4x8", "15x8")))["outputs"] == ["f32[15,8]"]


def test_run_is_the_program(served: Run, tmp_path: Path) -> None:
    left, right = np.random.default_rng(0).standard_normal((2, 16, 8)).astype(np.float32)
    np.save(tmp_path / "left.npy", left)
    np.save(tmp_path / "right.npy", right)
    np.savez(tmp_path / "both.npz", left=left, right=right)
    file = program(tmp_path, 16)
    for names in (["left.npy", "right.npy"], ["both.npz"]):
        inputs = [word for name in names for word in ("--input", str(tmp_path / name))]
        done = served("run", file, *inputs, "--output", tmp_path / "out", "--repeat", "3", "--json").json()
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "result_0.npy"), left + right)
        (result,) = done["results"]
        assert (result["dtype"], result["shape"], result["nan"], result["inf"]) == ("float32", "16x8", 0, 0)
        assert result["max"] == pytest.approx(float((left + right).max()))
        assert done["milliseconds"]["calls"] == 3


def test_random_arguments_come_from_the_seed(served: Run, tmp_path: Path) -> None:
    file = program(tmp_path, 17)
    first, again, other = (served("run", file, "--json", "--random", seed).json() for seed in ("1", "1", "2"))
    assert first["arguments"] == again["arguments"]
    assert first["results"] == again["results"]
    assert first["arguments"] != other["arguments"]
    people = served("run", file)
    assert "result 0" in people.out
    assert "16x8" not in people.out


def test_random_arguments_of_every_kind(served: Run, tmp_path: Path) -> None:
    types = ("i1", "i8", "ui16", "i64", "f16", "bf16", "f64", "complex<f32>")
    file = tmp_path / "kinds.mlir"
    arguments = ", ".join(f"%a{i}: tensor<3x{kind}>" for i, kind in enumerate(types))
    results = ", ".join(f"tensor<3x{kind}>" for kind in types)
    names = ", ".join(f"%a{i}" for i in range(len(types)))
    file.write_text(f"func.func @main({arguments}) -> ({results}) {{ return {names} : {results} }}")
    done = served("run", file, "--format", "stablehlo", "--json", "--output", tmp_path / "out").json()
    expected = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64", "complex64"]
    assert [entry["dtype"] for entry in done["results"]] == expected
    for argument, got in zip(done["arguments"], done["results"], strict=True):
        assert {**argument, "name": ""} == {**got, "name": ""}
    inputs = [word for i in range(len(types)) for word in ("-i", str(tmp_path / "out" / f"result_{i}.npy"))]
    repeated = served("run", file, "--format", "stablehlo", "--json", *inputs).json()
    assert repeated["results"] == done["results"]


def test_lookup_stores_nothing(served: Run, tmp_path: Path) -> None:
    file = program(tmp_path, 18)
    here = ("--namespace", "lookups")
    assert served("lookup", file, *here, "--json").code == 9
    assert served("stats", *here, "--json").json()["specs"] == 0
    key = served("compile", file, *here, "--json").json()["key"]
    lookup = served("lookup", file, *here, "--json").json()
    assert lookup["key"] == key == 1
    assert str(key) in served("lookup", file, *here).out
    assert served("lookup", program(tmp_path, 19, "resized.mlir"), *here, "--json").json() == lookup
    assert served("lookup", file, *here, "--numerics", "strict").code == 9


def test_show_gives_the_text_back(served: Run, tmp_path: Path) -> None:
    compiled = served("compile", program(tmp_path, 19), "--json").json()
    shown = served("show", str(compiled["key"]), "--json").json()
    assert hashlib.sha256(shown["text"].encode()).hexdigest() == shown["digest"] == compiled["spec_digest"]
    people = served("show", str(compiled["key"]))
    assert all(line in people.out for line in shown["text"].splitlines())


def test_namespaces_have_keys_of_their_own(served: Run, tmp_path: Path) -> None:
    file = program(tmp_path, 20)
    compiled = served("compile", file, "--namespace", "elsewhere", "--json").json()
    assert (compiled["key"], compiled["namespace"]) == (1, "elsewhere")
    assert served("lookup", file, "--namespace", "nowhere").code == 9
    assert served("stats", "--namespace", "elsewhere", "--json").json()["specs"] == 1


@pytest.mark.issue(number=19, point=25)
def test_stats_count(served: Run, tmp_path: Path) -> None:
    here = ("--namespace", "stats")
    for rows in (21, 22):
        served("compile", program(tmp_path, rows), *here)
    counted = served("stats", *here, "--json").json()
    assert {name: counted[name] for name in ("specs", "mappings", "kernels", "compiles")} == {
        "specs": 1,
        "mappings": 2,
        "kernels": 2,
        "compiles": 2,
    }
    text = served("stats", *here).out
    assert "seconds saved" in text
    for heading in (
        "service, since the namespace was created",
        "service, stored now",
        "service, since it started",
        "clients with this cache directory, since ",
    ):
        assert heading in text
    assert "0.0%" in text
    assert served("stats", *here, "--json").json()["hit_ratio"] == 0.0


FAILURES = [
    (["compile", "broken.mlir"], 3, "InvalidProgram"),
    (["compile", "unsupported.mlir"], 4, "UnsupportedOp"),
    (["compile", "add.mlir", "--target", "pdp-11"], 5, "ArgumentError"),
    (["compile", "add.mlir", "--numerics", "loose"], 5, "ArgumentError"),
    (["compile", "add.mlir", "--format", "fortran"], 5, "ArgumentError"),
    (["run", "add.mlir", "-i", "wrong.npy"], 5, "ArgumentError"),
    (["run", "add.mlir", "-i", "add.mlir"], 5, "ArgumentError"),
    (["run", "add.mlir", "-i", "add.npy", "-i", "add.npy", "-i", "add.npy"], 5, "ArgumentError"),
    (["run", "add.mlir", "-i", "missing.npy"], 9, "NotFound"),
    (["compile", "missing.mlir"], 9, "NotFound"),
    (["show", "123456789"], 9, "NotFound"),
    (["show", "1", "--token-file", "missing"], 9, "NotFound"),
    (["stats", "--addr", "127.0.0.1:1"], 13, "Unavailable"),
    (["stats", "--addr", "nonsense"], 5, "ArgumentError"),
    (["compile", "add.mlir", "--addr", "192.0.2.1:7420"], 12, "PermissionDenied"),
]


@pytest.mark.parametrize(("arguments", "code", "kind"), FAILURES, ids=lambda value: str(value))
def test_failures_have_codes(
    served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.mlir").write_text(ADD)
    (tmp_path / "broken.mlir").write_text("func.func @main( stablehlo.add")
    (tmp_path / "unsupported.mlir").write_text(UNSUPPORTED)
    np.save(tmp_path / "wrong.npy", np.ones((4, 9), np.float32))
    np.save(tmp_path / "add.npy", np.ones((4, 8), np.float32))
    machine = served(*arguments, "--json")
    assert machine.code == code, machine.err
    assert machine.error()["type"] == kind
    assert machine.error()["message"]


def test_failures_are_one_paragraph_for_people(served: Run) -> None:
    done = served("show", "123456789")
    assert (done.code, done.out) == (9, "")
    assert done.err == "kcache: error: key 123456789 was never given\n"


def test_debug_shows_where(served: Run) -> None:
    assert "Traceback" in served("show", "123456789", "--debug").err


def test_doctor_finds_everything_in_order(served: Run, server: ServerProcess) -> None:
    done = served("doctor", "--json", "--db", f"sqlite:///{server.database}").json()
    assert done["healthy"]
    states = {check["name"]: check["state"] for check in done["checks"]}
    assert states["health"] == states["service"] == states["server extra"] == "ok"
    assert states["workers"] in ("ok", "warning")  # as the kernel has it
    assert {state for name, state in states.items() if name.startswith("store: ")} == {"ok", "skipped"}
    assert "ok" in served("doctor", "--health").out
    people = served("doctor")
    assert people.code == 0
    assert server.address in people.out


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--health"]])
def test_doctor_misses_the_server(run: Run, arguments: list[str]) -> None:
    done = run(*arguments, "--addr", "127.0.0.1:1", "--json")
    assert done.code == 1
    report = json.loads(done.out)
    assert not report["healthy"]
    assert "kcache serve" in next(check["advice"] for check in report["checks"] if check["name"] == "health")


def test_doctor_without_a_service(run: Run, tmp_path: Path) -> None:
    checks = {check["name"]: check for check in run("doctor", "--json").json()["checks"]}
    assert checks["health"]["state"] == "skipped"
    assert checks["service"]["state"] == "ok"
    (tmp_path / "open").mkdir(mode=0o755)
    open_folder = run("doctor", "--json", "--cache-dir", tmp_path / "open").json()["checks"]
    folder = next(check for check in open_folder if check["name"] == "cache directory")
    assert folder["state"] == "warning"
    assert "chmod 700" in folder["advice"]
    old = run("doctor", "--json", "--db", f"sqlite:///{tmp_path}/none.sqlite")
    assert old.code == 1
    store = next(check for check in json.loads(old.out)["checks"] if check["name"] == "store")
    assert "kcache migrate" in store["detail"]


OPEN = """
func.func @main(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %sum = stablehlo.add %a, %b : tensor<?x4xf32>
  return %sum : tensor<?x4xf32>
}
"""


def test_run_draws_arguments_of_open_sizes(served: Run, tmp_path: Path) -> None:
    file, array = tmp_path / "open.mlir", tmp_path / "a.npy"
    file.write_text(OPEN)
    np.save(array, np.ones((5, 4), np.float32))

    def shapes(*arguments: str | Path) -> list[str]:
        ran = served("run", file, "--json", *arguments).json()
        return [entry["shape"] for entry in ran["arguments"] + ran["results"]]

    assert shapes() == ["16x4"] * 3
    assert shapes("--size", "3") == ["3x4"] * 3
    assert shapes("-i", array, "-i", array) == ["5x4"] * 3
    assert shapes("-i", array, "--size", "3") == ["5x4"] * 3, "what is drawn fits what is given"
    other = tmp_path / "b.npy"
    np.save(other, np.ones((6, 4), np.float32))
    disagreeing = served("run", file, "--json", "-i", array, "-i", other).error()
    assert disagreeing["type"] == "ArgumentError"
    assert "axis 0 is 6 instead of 5 (s0 = 5 from axis 0 of argument 0)" in disagreeing["message"]


def test_tables_in_pipes_end_with_their_text(served: Run) -> None:
    lines = served("stats").out.splitlines()
    assert len(lines) > 5
    assert all(line == line.rstrip() for line in lines)


def test_a_server_that_does_not_answer_is_named(run: Run) -> None:
    error = run("stats", "--addr", "127.0.0.1:1", "--json").error()
    assert error["type"] == "Unavailable"
    assert error["message"].startswith("127.0.0.1:1 does not answer: ")


def test_errors_have_documented_names(run: Run, add_file: Path) -> None:
    failed = run("migrate", "--db", f"sqlite:///{add_file}", "--json")
    assert failed.error()["type"] in errors.__dict__
    assert "not an SQLite database" in failed.error()["message"]


def test_show_cuts_no_line(served: Run, tmp_path: Path) -> None:
    constant = ", ".join(str(number / 7) for number in range(60))
    file = tmp_path / "long.mlir"
    file.write_text(f"""
func.func @main(%a: tensor<60xf32>) -> tensor<60xf32> {{
  %c = stablehlo.constant dense<[{constant}]> : tensor<60xf32>
  %sum = stablehlo.add %a, %c : tensor<60xf32>
  return %sum : tensor<60xf32>
}}""")
    key = served("compile", file, "--json").json()["key"]
    text = served("show", str(key), "--json").json()["text"]
    assert max(map(len, text.splitlines())) > 400
    assert text.rstrip() in served("show", str(key)).out


def test_autotune_records_and_compile_takes_the_winner(served: Run, tmp_path: Path) -> None:
    file = program(tmp_path, 21)
    tuned = served("autotune", file, "--choices", "unroll,grain", "--budget", "0.3", "--json").json()
    assert tuned["recorded"] == len(tuned["timings"])
    assert {"schedule": ""}.items() <= min(tuned["timings"], key=lambda each: each["schedule"]).items()
    compiled = served("compile", file, "--schedule", "recorded", "--json").json()
    assert compiled["kernel_digest"] == tuned["kernel_digest"]
    chosen = served("compile", file, "--schedule", "unroll:on,grain:4", "--json").json()
    assert chosen["options"].endswith("schedule=grain:4,unroll:on")
    table = served("autotune", file, "--choices", "unroll", "--budget", "0.1").out
    assert "times faster" in table
    assert "default" in table
    rejected = served("autotune", file, "--choices", "speed", "--json").error()
    assert "no schedule choice" in rejected["message"]


@pytest.mark.issue(number=19, point=8)
def test_commands_name_the_store_that_a_key_belongs_to(
    served: Run, server: ServerProcess, add_file: Path
) -> None:
    assert served("compile", add_file, "--json").json()["service"] == server.address
    assert server.address in served("compile", add_file).out
    assert served("run", add_file, "--json").json()["service"] == server.address


@pytest.mark.issue(number=19, point=8)
def test_a_key_of_another_store_than_the_requested_one_is_named(
    served: Run, server: ServerProcess, add_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client answers as one that was told to use another service than the one that answered."""
    monkeypatch.setattr(Client, "service", "elsewhere:1")
    done = served("compile", add_file)
    assert done.code == 0
    assert f"of the store of the service '{server.address}', not of elsewhere:1" in done.err


@pytest.mark.issue(number=19, point=28)
def test_a_token_file_that_is_missing_is_named_with_its_option(run: Run, tmp_path: Path) -> None:
    missing = run("stats", "--addr", "127.0.0.1:1", "--token-file", tmp_path / "missing")
    assert missing.code == 9
    assert f"--token-file: the token file {tmp_path / 'missing'} cannot be read" in missing.err
