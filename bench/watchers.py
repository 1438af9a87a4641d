"""Watches a session from many connections, some of which never read.

`python -m bench.watchers URL READING SILENT TASK`

says `watching` when all are there. When the task is over for all who read, it says how many of them got every byte of
the output, which is read from stdin then, in its order. The task is known by its output, which begins with its text.
"""

import json
import selectors
import socket
import sys

from murmur.domain.sse import EventReader
from murmur.domain.watching import OutputSeen, StatusSeen, read_event

_FINAL = b'"final":true'


def main() -> None:
    """Watch one task to its end."""
    url, reading, silent, task = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    host, _, port = url.rpartition(":")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "stream/watch", "params": {}}).encode()
    # Behind all that there was: what earlier tasks have said is not asked for.
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 999999999\r\nContent-Length: %d\r\n\r\n"
    request = head % len(body) + body
    connections = [socket.create_connection((host, int(port))) for _ in range(reading + silent)]
    for connection in connections:
        connection.sendall(request)
        while b"connection-ack" not in connection.recv(65536):
            pass
    print("watching", flush=True)
    said: dict[socket.socket, bytearray] = {connection: bytearray() for connection in connections[:reading]}
    with selectors.DefaultSelector() as selector:
        for connection in said:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                data, kept = key.fileobj.recv(1 << 18), said[key.fileobj]
                kept += data
                if not data or (_FINAL in data and kept.rfind(_FINAL) > kept.find(task.encode()) > 0):
                    selector.unregister(key.fileobj)
    wanted = sys.stdin.read()
    print(sum(wanted in _outputs(bytes(kept)) for kept in said.values()), flush=True)


def _outputs(content: bytes) -> list[str]:
    """Return what a stream says that each task has printed which was followed to its end."""
    seen = [read_event(event, None) for event in EventReader().feed(content)]
    ended = [each.task_id for each in seen if isinstance(each, StatusSeen) and each.is_final]
    said = [each for each in seen if isinstance(each, OutputSeen)]
    return ["".join(each.text for each in said if each.task_id == task_id) for task_id in ended]


if __name__ == "__main__":
    main()
