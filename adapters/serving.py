"""Serves doors beside a main thread that waits for something else: an asyncio loop in a thread of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from murmur.adapters.reasons import reason_of
from murmur.adapters.threads import start_thread
from murmur.domain.errors import DoorNotOpened

if TYPE_CHECKING:
    from concurrent.futures import Future

_Answer = TypeVar("_Answer")


class ServingThread:
    """The loop and its thread. A context manager: leaving it closes what was served and ends the thread."""

    def __init__(self) -> None:
        """Start the thread; raise `DoorNotOpened`."""
        self._closers: list[Callable[[], Awaitable[None]]] = []
        try:
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            raise DoorNotOpened(f"no door can be served: {reason_of(error)}") from error
        try:
            self._thread = start_thread("doors", self._run)
        except RuntimeError:
            self._loop.close()
            raise DoorNotOpened("no door can be served: no thread can be started") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for close in reversed(self._closers):
            self.do(partial(_awaited, close))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def do(self, work: Callable[[], Coroutine[None, None, _Answer]]) -> _Answer:
        """Do something in the loop and wait for it."""
        done: Future[_Answer] = asyncio.run_coroutine_threadsafe(work(), self._loop)
        return done.result()

    def closes(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have that awaited in the loop when this is left."""
        self._closers.append(close)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()


async def _awaited(close: Callable[[], Awaitable[None]]) -> None:
    await close()
