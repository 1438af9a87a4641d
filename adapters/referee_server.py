"""How is a referee served on loopback, inside a running asyncio loop?

The store is looked into by threads, so that the loop can serve others meanwhile, by a few at a time.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from murmur.adapters.capsule_store import StoredCapsule
from murmur.adapters.clock import steady_milliseconds
from murmur.adapters.door_server import DoorServer, bind_door
from murmur.adapters.threads import start_thread
from murmur.domain.capsule_store import MANIFEST, CapsuleReference
from murmur.domain.errors import CapsuleNotFound, MurmurError
from murmur.domain.referee import Referee
from murmur.domain.roost_door import InStore, Looked, LookUp, NotInStore, RoostDoor, StoreUnusable, error
from murmur.domain.secret import SpawnCredential
from murmur.domain.served_door import DoorRequest, DoorResponse
from murmur.domain.visible_text import visible

_ADDRESS = "127.0.0.1"
_LOOKING = 2
"""How many capsules are read at once; other requests wait for their turn."""

Find = Callable[[CapsuleReference], StoredCapsule]


class RefereeServer:
    """One referee, served until it is closed."""

    def __init__(
        self,
        referee: Referee,
        find: Find,
        *,
        unnamed: SpawnCredential | None = None,
        now: Callable[[], int] | None = None,
    ) -> None:
        """Serve a referee that knows capsules by `find`, which is called in threads.

        Who sends no credential asks by `unnamed`, if there is one. `now` is a clock of Unix ms that is never set
        back: an approval would live longer.
        """
        self._referee = referee
        self._find = find
        self._unnamed = unnamed
        self._now = now or steady_milliseconds()
        self._door: RoostDoor | None = None
        self._server: DoorServer | None = None
        self._turns = asyncio.Semaphore(_LOOKING)

    async def serve(self, port: int = 0) -> str:
        """Answer from now on; return the url. Port 0 picks one. Raises `DoorNotOpened`."""
        door, authority = bind_door(_ADDRESS, port)
        self._door = RoostDoor(self._referee, authority, self._unnamed)
        self._server = DoorServer(self._respond)
        number = door.getsockname()[1]
        await self._server.serve(door)
        # Not by the name `localhost`: tokens go there, and it may also mean an address that is not ours.
        return f"http://{_ADDRESS}:{number}"

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            await self._server.close()

    def _respond(self, request: DoorRequest) -> "DoorResponse | asyncio.Future[DoorResponse]":
        assert self._door is not None
        answer = self._door.answer(request, self._now())
        if not isinstance(answer, LookUp):
            return answer
        if request.crowd is not None:
            return error(500, f"{request.crowd} callers wait for the store already; ask again later")
        return asyncio.ensure_future(self._respond_later(answer))

    async def _respond_later(self, answer: LookUp) -> DoorResponse:
        looked = await self._looked(answer.reference)
        return answer.respond(looked, self._now())

    async def _looked(self, reference: CapsuleReference) -> Looked:
        """Look into the store in a thread. Cancelled, it goes on, and keeps its turn until it has ended."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Looked] = loop.create_future()

        def finish(looked: Looked) -> None:
            self._turns.release()
            if not done.done():
                done.set_result(looked)

        def work() -> None:
            looked: Looked = StoreUnusable("the referee failed to look into its store")
            try:
                looked = _look(self._find, reference)
            finally:
                # Whatever happened: somebody waits for the answer.
                with suppress(RuntimeError):  # The loop is closed: nobody does.
                    loop.call_soon_threadsafe(finish, looked)

        await self._turns.acquire()
        try:
            start_thread("capsule store", work)
        except RuntimeError:
            self._turns.release()
            return StoreUnusable("the referee cannot start a thread now; ask again later")
        return await done


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
