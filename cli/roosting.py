"""How is a referee run as a daemon in the foreground, beside whoever delegates?"""

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from errno import EADDRINUSE
from signal import Signals

from murmur.adapters.ending_signals import EndingSignals
from murmur.adapters.identifiers import fresh_hex, mint
from murmur.adapters.outcomes import read_outcome
from murmur.adapters.reasons import reason_of
from murmur.adapters.referee_server import RefereeServer
from murmur.cli import wiring
from murmur.cli.output import announce, note, warn
from murmur.cli.stores import stored_capsule
from murmur.domain.door_tokens import TokenKey
from murmur.domain.errors import DoorNotOpened
from murmur.domain.referee import Referee
from murmur.domain.roll_call import Known, Seen, seen
from murmur.domain.spawn_terms import Outcome, SpawnLimits
from murmur.domain.uptime import started_at_text
from murmur.domain.value import Value


class Roost(Value):
    """What is to be run, and how it is told."""

    port: int
    allow: frozenset[str]
    """What may be launched by who has no credential."""
    depth: int
    children: int
    as_json: bool = False


def run_roost(wanted: Roost) -> None:
    """Serve a referee until a signal ends it. Raises `MurmurError` with nothing served."""
    # First of all, so that whatever is begun is ended in order.
    signals = EndingSignals()
    with ExitStack() as opened:
        try:
            runner = opened.enter_context(signals.runner())
        except OSError as error:
            raise DoorNotOpened(f"the roost could not be set up: {reason_of(error)}") from error
        runner.run(_serve(wanted, signals))


async def _serve(wanted: Roost, signals: EndingSignals) -> None:
    referee = Referee(TokenKey(secrets.token_hex(32)), fresh_hex, SpawnLimits(wanted.depth, wanted.children), _tell)
    session_id = mint("ses_")
    unnamed = referee.enrol_unnamed(session_id, wanted.allow)
    server = RefereeServer(referee, stored_capsule, unnamed=unnamed, look=_look)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(server.close)
        server.count()
        url = await _served(server, wanted.port)
        if not wanted.allow:
            warn("nothing may be launched from a shell: name what may be with --spawn-allow NAME")
        line = {"pid": os.getpid(), "session_id": session_id, "url": url}
        announce(json.dumps(line) if wanted.as_json else f"murmur: roost {url}")
        await _ended(signals)
        await server.flush()


async def _served(server: RefereeServer, port: int) -> str:
    try:
        return await server.serve(port)
    except DoorNotOpened as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == EADDRINUSE:
            raise DoorNotOpened(
                error.message, hint="is a roost there already? choose another --port; 0 picks a free one"
            ) from error
        raise


async def _ended(signals: EndingSignals) -> None:
    """Wait for a signal. A second one says nothing new: nothing that follows takes long."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def take(number: Signals) -> None:
        with suppress(RuntimeError):  # The loop is closed: the roost is over.
            loop.call_soon_threadsafe(end, number)

    def end(number: Signals) -> None:
        if not ended.is_set():
            _tell("ending", f"asked to by {number.name}")
        ended.set()

    signals.tell(take)
    await ended.wait()


def _look(known: Mapping[str, Known]) -> tuple[Seen, Mapping[str, Outcome]]:
    with wiring.running_directory(create=False) as directory:
        listing = wiring.read_registry(directory, prune=False)
    found = seen(listing, known, wiring.processes)
    gone = {session_id: known[session_id].records for session_id in found.gone if session_id in known}
    return found, {session_id: read_outcome(records) for session_id, records in gone.items() if records is not None}


def _tell(event: str, detail: str) -> None:
    note(f"{started_at_text(wiring.clock.now())} {event}: {detail}")
