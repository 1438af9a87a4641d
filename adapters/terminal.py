"""Does this process have a controlling terminal? (G4)."""

import os


def has_controlling_terminal() -> bool:
    """Whether `/dev/tty` opens: a session attached to a terminal ends with that window.

    The terminal itself is asked, since redirecting a stream does not detach a process.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(descriptor)
    return True
