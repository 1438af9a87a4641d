"""How is a referee served on loopback, inside a running asyncio loop?

The store and the registry are looked into by threads, so that the loop can serve others meanwhile, by a few at a
time. Nothing is looked into unless somebody asks: at rest a referee does nothing at all.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from murmur.adapters.capsule_store import StoredCapsule
from murmur.adapters.clock import steady_milliseconds
from murmur.adapters.door_server import DoorServer
from murmur.adapters.door_socket import bind_door
from murmur.adapters.threads import start_thread
from murmur.domain.capsule_store import MANIFEST, CapsuleReference
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.errors import CapsuleNotFound, MurmurError
from murmur.domain.referee import Referee
from murmur.domain.roll_call import Known, RollCall, Seen
from murmur.domain.roost_door import InStore, Looked, LookUp, NotInStore, RoostDoor, StoreUnusable, error
from murmur.domain.secret import SpawnCredential
from murmur.domain.spawn_terms import Outcome
from murmur.domain.visible_text import visible

_ADDRESS = "127.0.0.1"
_LOOKING = 2
"""How many capsules are read at once; other requests wait for their turn."""

_Found = TypeVar("_Found")

Find = Callable[[CapsuleReference], StoredCapsule]
Look = Callable[[Mapping[str, Known]], tuple[Seen, Mapping[str, Outcome]]]
"""Looks at what runs, and at sessions known before; says how those that are gone ended, where that can be told.

Raises `MurmurError` when it cannot be told what runs.
"""


class RefereeServer:
    """One referee, served until it is closed."""

    def __init__(
        self,
        referee: Referee,
        find: Find,
        *,
        unnamed: SpawnCredential | None = None,
        look: Look | None = None,
        now: Callable[[], int] | None = None,
    ) -> None:
        """Serve a referee that knows capsules by `find`, and what runs by `look`, both called in threads.

        Who sends no credential asks by `unnamed`, if there is one. Without `look` only what the referee is told
        counts. `now` is a clock of Unix ms that is never set back: an approval would live longer.
        """
        self._referee = referee
        self._find = find
        self._unnamed = unnamed
        self._look = look
        self._roll = RollCall(referee)
        self._now = now or steady_milliseconds()
        self._door: RoostDoor | None = None
        self._server: DoorServer | None = None
        self._turns = asyncio.Semaphore(_LOOKING)
        self._looks = asyncio.Lock()
        self._next_look: asyncio.Future[DoorResponse | None] | None = None

    def count(self) -> None:
        """Look at what runs already, before anybody is served. Raises `MurmurError`."""
        if self._look is not None:
            self._roll.take(*self._look(self._roll.known))

    async def serve(self, port: int = 0) -> str:
        """Answer from now on; return the url. Port 0 picks one. Raises `DoorNotOpened`."""
        door, authority = bind_door(_ADDRESS, port)
        registered = None if self._look is None else self._roll.registered
        self._door = RoostDoor(self._referee, authority, self._unnamed, registered)
        self._server = DoorServer(self._respond)
        number = door.getsockname()[1]
        await self._server.serve(door)
        # Not by the name `localhost`: tokens go there, and it may also mean an address that is not ours.
        return f"http://{_ADDRESS}:{number}"

    async def flush(self) -> None:
        """Let the answers that are due reach their callers; bounded."""
        if self._server is not None:
            await self._server.flush()

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            await self._server.close()

    def _respond(self, request: DoorRequest) -> "DoorResponse | asyncio.Future[DoorResponse]":
        assert self._door is not None
        looks = self._look is not None and self._door.is_about_what_runs(request)
        answer = None if looks else self._door.answer(request, self._now())
        if isinstance(answer, DoorResponse):
            return answer
        if request.crowd is not None:
            return error(500, f"{request.crowd} callers wait for an answer already; ask again later")
        return asyncio.ensure_future(self._respond_later(request, answer))

    async def _respond_later(self, request: DoorRequest, answer: LookUp | None) -> DoorResponse:
        """Answer by what the store holds, and without an answer by what runs before that."""
        assert self._door is not None
        if answer is None:
            refusal = await self._looked_around()
            then = refusal or self._door.answer(request, self._now())
            if isinstance(then, DoorResponse):
                return then
            answer = then
        looked = await self._in_turn("store", partial(_look, self._find, answer.reference))
        return answer.respond(StoreUnusable(looked) if isinstance(looked, str) else looked, self._now())

    async def _looked_around(self) -> DoorResponse | None:
        """Bring the ledger up to date with what runs; return a refusal where that cannot be told.

        All who ask while a look goes on share the one after it: what they wait for begins after they asked.
        """
        if self._next_look is None:
            self._next_look = asyncio.ensure_future(self._look_after_that())
        return await asyncio.shield(self._next_look)

    async def _look_after_that(self) -> DoorResponse | None:
        assert self._look is not None
        async with self._looks:
            self._next_look = None
            found = await self._in_turn("registry", partial(_look_around, self._look, self._roll.known))
            if isinstance(found, str):
                return error(500, found)
            self._roll.take(*found)
            return None

    async def _in_turn(self, place: str, look: Callable[[], _Found]) -> _Found | str:
        """Look somewhere in a thread; return words where that failed.

        Cancelled, the look goes on, and keeps its turn until it has ended.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Found | str] = loop.create_future()

        def finish(found: _Found | str) -> None:
            self._turns.release()
            if not done.done():
                done.set_result(found)

        def work() -> None:
            found: _Found | str = f"the referee failed to look into its {place}"
            try:
                found = look()
            finally:
                # Whatever happened: somebody waits for the answer.
                with suppress(RuntimeError):  # The loop is closed: nobody does.
                    loop.call_soon_threadsafe(finish, found)

        await self._turns.acquire()
        try:
            start_thread(place, work)
        except RuntimeError:
            self._turns.release()
            return "the referee cannot start a thread now; ask again later"
        return await done


def _look_around(look: Look, known: Mapping[str, Known]) -> tuple[Seen, Mapping[str, Outcome]] | str:
    try:
        return look(known)
    except MurmurError as refused:
        return f"the referee cannot tell what runs: {refused.message}"


def _look(find: Find, reference: CapsuleReference) -> Looked:
    """Find a capsule and what it may launch itself."""
    try:
        # Here, since most sessions referee nothing: YAML and pydantic are a good part of a start.
        from murmur.adapters.manifest_file import parse_manifest  # noqa: PLC0415

        capsule = find(reference)
        # Of the bytes that were digested, so that what may be launched is a part of what was approved.
        manifest, _ = parse_manifest(capsule.manifest, visible(str(capsule.folder / MANIFEST)))
    except CapsuleNotFound as refused:
        return NotInStore(refused.message)
    except MurmurError as refused:
        return StoreUnusable(refused.message)
    return InStore(str(capsule.folder), capsule.digest, frozenset(manifest.capabilities.spawn.allow))
