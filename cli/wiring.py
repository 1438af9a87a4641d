"""The composition root: which adapter stands behind each port, and with which limits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from murmur.adapters.clock import SystemClock
from murmur.adapters.doors import HttpDoors
from murmur.adapters.exits import SystemExits
from murmur.adapters.murmur_home import open_running, running_location
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.door import CANCEL_LIMITS, HANDOVER_LIMITS, STOP_LIMITS, TASK_LIMITS
from murmur.domain.listing import Listing, list_sessions
from murmur.domain.sweep import Sweep

clock = SystemClock()
processes = SystemProcesses()
exits = SystemExits()
doors = HttpDoors()
stop_doors = HttpDoors(STOP_LIMITS)
task_doors = HttpDoors(TASK_LIMITS)
handover_doors = HttpDoors(HANDOVER_LIMITS)
cancel_doors = HttpDoors(CANCEL_LIMITS)


def read_registry(directory: OpenRunningDirectory, *, prune: bool) -> Listing:
    """Read every record and everything else in the directory; with `prune`, remove what evidence allows."""
    listing = list_sessions(directory, processes, prune=prune)
    Sweep(directory, processes, clock, listing, prune).run()
    return listing


@contextmanager
def running_directory(*, create: bool) -> Iterator[OpenRunningDirectory]:
    """Open this user's running directory; with `create`, make it and hold it private first (H2, H3)."""
    descriptor = open_running(os.environ, create=create)
    with OpenRunningDirectory(descriptor, running_location(os.environ)) as directory:
        yield directory
