#!/usr/bin/env python3
"""A small agent for the demo: says that it is at work, works, and ends politely when it is asked to.

It goes by the name it was called under. It knows nothing of sessions: any command can be hosted.
"""

import os
import signal
import sys
import time
from pathlib import Path


def _asked_to_end(_number: int, _frame: object) -> None:
    raise SystemExit


def main() -> None:
    """Work until SIGTERM."""
    name = Path(sys.argv[0]).name
    signal.signal(signal.SIGTERM, _asked_to_end)
    print(f"{name}: at work as process {os.getpid()}", flush=True)
    try:
        while True:
            time.sleep(60)
            print(f"{name}: still at work", flush=True)
    finally:
        print(f"{name}: asked to end, so it says good-bye", flush=True)


if __name__ == "__main__":
    main()
