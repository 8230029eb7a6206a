"""The demo observes servers that may be away at any moment, in any state."""

from typing import Any, cast

import asyncpg
import pytest

from dispatcher.kube.client import KubeClient
from dispatcher.programs.demo.observe import Observer


class Broken:
    """A connection whose server was killed during an answer. The driver takes it for open."""

    is_terminated = False

    def is_closed(self) -> bool:
        return False

    async def fetch(self, *_: Any, **__: Any) -> list[Any]:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    def terminate(self) -> None:
        self.is_terminated = True


async def test_connection_that_broke_during_an_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    observer, broken = Observer("postgresql://nowhere", cast("KubeClient", None), "x", frozenset()), Broken()

    async def no_reasons() -> tuple[dict[tuple[str, str], int], int]:
        return {}, 0

    monkeypatch.setattr(observer, "_reasons", no_reasons)
    monkeypatch.setattr(observer, "_connection", broken)
    view = await observer.observe()
    assert (view.rows, view.reasons) == ((), None)
    assert broken.is_terminated
    await observer.close()
