"""The least that a door could be: a bare starlette app on uvicorn that answers given bytes.

Run as `python -m bench.bare_door`. Its stdin carries the answer as one JSON line, its stdout gives back the port. It
ends when its stdin does.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmur.domain.door import CARD_PATH


def app(body: bytes) -> Starlette:
    """Make an app that answers the card's path with those bytes."""

    async def card(_: Request) -> Response:
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route(CARD_PATH, card)])


async def main() -> None:
    """Serve until stdin ends."""
    loop = asyncio.get_running_loop()
    body: str = json.loads(sys.stdin.readline())
    listener = socket.create_server(("127.0.0.1", 0))
    # As uvicorn has it where it binds by itself: without this an answer in two writes waits for the client's delayed
    # acknowledgement, and both doors would be measured as equally slow.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app(body.encode()), log_level="critical", access_log=False, lifespan="off"))

    async def end_with_stdin() -> None:
        await loop.run_in_executor(None, sys.stdin.read)
        server.should_exit = True

    ending = asyncio.create_task(end_with_stdin())
    print(listener.getsockname()[1], flush=True)
    await server.serve(sockets=[listener])
    await ending


if __name__ == "__main__":
    asyncio.run(main())
