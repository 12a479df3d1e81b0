"""What commands print at 80 and at 120 columns: no word is broken, and what does not fit is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.cli import output
from kcache_grpc.cli.commands import compile
from kcache_grpc.cli.commands.support import _page as support_page
from kcache_grpc.storage import open_store
from kcache_grpc.storage.examination import examine
from tests.cli.command import ADD, UNSUPPORTED
from tests.cli.conftest import Run

pytestmark = pytest.mark.issue(number=19, point=24)

WIDTHS = (80, 120)
#: Wide enough that nothing is wrapped.
UNBOUNDED = 2000

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("compile", "add.mlir"),
    ("lookup", "add.mlir"),
    ("show", "1"),
    ("explain", "add.mlir"),
    ("stats",),
    ("audit", "heads"),
    ("support",),
    ("doctor",),
    ("cache", "info"),
    ("pins", "servers"),
)


def printed(run: Run, monkeypatch: pytest.MonkeyPatch, width: int, *command: str | Path) -> str:
    monkeypatch.setattr(output, "_PIPE_WIDTH", width)
    done = run(*command)
    assert done.code == 0, done.err
    return done.out


def words(text: str) -> set[str]:
    """All words, whatever their order; numbers may differ from call to call."""
    return {re.sub(r"\d+", "0", word) for word in text.split()}


def require_width(text: str, width: int) -> None:
    """Lines fit, but for a word that is wider by itself with its indentation."""
    for line in text.splitlines():
        assert len(line) <= width or len(line.split()) == 1 or len(line.split()[-1]) > width // 2, line


@pytest.mark.sampled(36)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_breaks_a_word(
    served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "add.mlir").write_text(ADD)
    monkeypatch.chdir(tmp_path)
    served("compile", "add.mlir")
    unbounded = printed(served, monkeypatch, UNBOUNDED, *command)
    for width in WIDTHS:
        text = printed(served, monkeypatch, width, *command)
        require_width(text, width)
        assert words(text) == words(unbounded)


def test_events_take_a_line_each(served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "add.mlir").write_text(ADD)
    (tmp_path / "unsupported.mlir").write_text(UNSUPPORTED)
    served("compile", tmp_path / "add.mlir")
    assert served("compile", tmp_path / "unsupported.mlir", "--retry").code == 4
    condition = "kind = PUBLISH OR kind = Failure"
    events = served("audit", "list", condition, "--json").json()
    assert {event["kind"] for event in events} == {"publish", "failure"}
    assert {"ok", "unsupported_op"} <= {event["outcome"] for event in events}
    assert all(event["outcome"] == event["outcome"].lower() for event in events)
    for width in WIDTHS:
        text = printed(served, monkeypatch, width, "audit", "list", condition)
        require_width(text, width)
        lines = text.splitlines()
        names = lines[0].split()
        for event, line in zip(events, lines[1:], strict=False):
            assert line.split()[:4] == [
                str(event["id"]),
                event["time"][:23],
                event["kind"],
                event["outcome"],
            ]
        missing = [name for name in ("actor", "kernel", "target", "requests") if name not in names]
        note = " ".join(" ".join(lines[1 + len(events) :]).split())
        assert all(name in note for name in missing)
        assert bool(note) == bool(missing)


def test_a_narrow_list_leaves_columns_out_and_then_stacks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [{"name": "n" * 30, "digest": "d" * 30, "spare": "s" * 30, "count": 7}] * 2
    shown = {width: rendered(output.rows(values, expendable=("spare",)), width) for width in (120, 80, 60)}
    assert shown[120].split()[:4] == ["name", "digest", "spare", "count"]
    assert shown[80].split()[:3] == ["name", "digest", "count"]
    assert "without spare: --json" in shown[80]
    assert [line.split()[0] for line in shown[60].split("\n") if line] == [
        "name",
        "digest",
        "spare",
        "count",
    ] * 2


def rendered(renderable: Any, width: int) -> str:
    from rich.console import Console

    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(renderable, crop=False)
    return captured.get()


@pytest.mark.parametrize("width", WIDTHS)
def test_reasons_are_wrapped_between_words(width: int) -> None:
    reason = "no definition of a custom call whose name nobody knows, neither here nor in the tables of JAX"
    rejected = [{"op": "stablehlo.custom_call @nobody", "reason": reason, "count": 1, "where": ["-:3:8"]}]
    report = {
        "format": "stablehlo",
        "target": "x86-64-v4",
        "numerics": "default",
        "service": None,
        "operations": 1,
        "supported": 0,
        "rejected": rejected,
        "note": "",
    }
    text = rendered(support_page("p.mlir", report), width)
    require_width(text, width)
    assert not set(reason.split()) - set(text.split())


def test_stages_are_summarized() -> None:
    names = [f"stage{number}" for number in range(60)]
    groups = [
        {"stages": ["canonicalize"], "seconds": 0.1},
        {"stages": names, "seconds": 0.2},
        {"stages": ["object", "link"], "seconds": 0.1},
        {"stages": ["receive"], "seconds": 0.001},
    ]
    assert compile._slowest(groups) == (
        "canonicalize 0.100, stage0 to stage59 (60 stages) 0.200, object+link 0.100, 1 other 0.001"
    )


def test_one_thing_is_not_several(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with open_store(url, migrate=True) as store:
        namespace = store.get_or_create_namespace("default")
        store.set_quota(namespace, "kernels", 5, "refuse")
    details = {each.name: each.detail for each in examine(url)}
    assert details["key counters"] == "0 keys in 1 namespace"
    assert details["quotas"] == "1 quota"
    assert output.count(1, "key") == "1 key"
