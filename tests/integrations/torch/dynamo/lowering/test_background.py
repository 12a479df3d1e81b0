"""Work in a thread of its own."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar

import pytest

from kcache_grpc.integrations.torch.dynamo.lowering.background import Background


def test_others_go_on_when_the_work_says_so() -> None:
    begun, gate = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        assert gate.wait(60)
        return 3

    background = Background(work, begun)
    assert background.has_begun()
    assert not background.has_ended
    gate.set()
    assert background.result() == background.result() == 3
    assert background.has_ended


def test_work_that_ends_without_saying_so() -> None:
    background = Background(lambda: None, threading.Event())
    assert not background.has_begun()
    assert background.result() is None


@pytest.mark.parametrize("error", [ValueError("injected"), SystemExit(3)])
def test_an_error_is_raised_each_time(error: BaseException) -> None:
    def work() -> None:
        raise error

    background = Background(work, threading.Event())
    for _ in range(2):
        with pytest.raises(type(error)):
            background.result()


def test_the_work_has_the_context_of_the_caller() -> None:
    name = ContextVar[str]("name")
    name.set("caller's")
    assert Background(name.get, threading.Event()).result() == "caller's"


def test_a_process_without_room_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    background = Background(threading.get_ident, threading.Event())
    assert not background.has_begun()
    assert background.result() == threading.get_ident()


# On Python 3.12 and later threads are reason enough to warn; JAX warns if another test imported it.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_the_child_of_a_fork_works_anew() -> None:
    begun, gate = threading.Event(), threading.Event()
    parent = os.getpid()

    def work() -> int:
        if os.getpid() == parent:
            begun.set()
            assert gate.wait(60)
        return os.getpid()

    background, ended = Background(work, begun), Background(os.getpid, threading.Event())
    assert background.has_begun()
    assert ended.result() == parent
    child = os.fork()
    if not child:
        os._exit(background.result() == background.result() == os.getpid() and ended.result() == parent)
    gate.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert background.result() == parent


def test_a_fork_finds_the_value_or_the_work() -> None:
    """Until the work has ended for ``after_fork``, the child may call it again."""
    ready, gate = threading.Event(), threading.Event()
    is_there: list[bool] = []

    class Ended(threading.Event):
        def set(self) -> None:
            is_there.append(background._work is not None)
            super().set()

    def work() -> int:
        ready.set()
        assert gate.wait(60)
        return 3

    background = Background(work, ready)
    assert background.has_begun()
    background._ended = Ended()
    gate.set()
    assert background.result() == 3
    assert is_there == [True]
