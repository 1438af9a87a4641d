"""`mur run --detach`: start the same command again, out of the terminal's reach, and return once its door answers."""

import subprocess
import sys

from murmur.cli.output import note, say


def run_detached(*, as_json: bool) -> int:
    """Start this command line without `--detach` in a session of its own; return its exit status if it never is ready.

    Its stderr is passed on until it is ready, and nobody's afterwards: a closed stream never ends a session (M4).
    """
    arguments = _without_detach(sys.argv[1:])
    with subprocess.Popen(
        [sys.executable, "-m", "murmur.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        errors="replace",
    ) as session:
        assert session.stdout is not None
        assert session.stderr is not None
        try:
            ready = [session.stdout.readline()]
            while not as_json and ready[-1] and not ready[-1].startswith("session: "):
                ready.append(session.stdout.readline())
        except BaseException:
            session.terminate()  # Nobody waits for it any more, and nobody would know of it.
            raise
        if ready[-1]:
            say("".join(ready).rstrip("\n"))
            session.stdout.close()
            session.stderr.close()
            # It is nobody's child from here on: the interpreter must not wait for it.
            session.returncode = 0
            return 0
        output, errors = session.communicate()
        if output := "".join(ready) + output:
            say(output.rstrip("\n"))
        if errors:
            note(errors.rstrip("\n"))
        return session.returncode or 1


def _without_detach(arguments: list[str]) -> list[str]:
    """Drop our own option, and leave what comes after `--` to the command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [each for each in arguments[:end] if each != "--detach"] + arguments[end:]
