"""What `make demo` shows: three sessions, one killed, one frozen; and two delegations, one of which loses its parent.

The commands are the real ones, and so is what they print. It all happens under a temporary home, gone afterwards.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from murmur.adapters.exits import wait_for_any_exit

AGENT = Path(__file__).with_name("agent.py").resolve()
MUR = Path(sys.executable).with_name("mur")
PATIENCE = 8.0
"""Seconds a session gets to end by itself: more than `mur run` grants its command."""


@dataclass(frozen=True)
class Session:
    """One `mur run`, a child of this program, and the agent it hosts, which is no child of ours."""

    host: "subprocess.Popen[str]"
    agent: int


def say(sentence: str, command: str) -> None:
    """Introduce a command in a plain sentence, and show it as a person would type it."""
    print(f"\n{sentence}\n$ {command}", flush=True)


def run(sentence: str, command: str, environment: Mapping[str, str], cwd: Path | None = None) -> None:
    """Introduce one `mur` command and run it; it prints where we print."""
    say(sentence, command)
    subprocess.run([MUR, *shlex.split(command)[1:]], cwd=cwd, env=environment, stderr=subprocess.STDOUT, check=True)


def start(sentence: str, name: str, home: Path, environment: Mapping[str, str], opened: ExitStack) -> Session:
    """Host one agent and print what `mur run` prints, until the agent is listed and says that it is at work."""
    (home / "bin" / name).symlink_to(AGENT)
    say(sentence, f"mur run --verbose -- {name} &")
    host = subprocess.Popen(
        [MUR, "run", "--verbose", "--", name],
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,  # As a shell starts a job: ^C then reaches this program alone, which cleans up.
    )
    opened.callback(end, host)
    assert host.stdout is not None
    listed, agent = False, 0
    while not (listed and agent):
        line = host.stdout.readline()
        if not line:
            raise SystemExit(f"the demo stops: `mur run` ended with status {host.wait()}")
        print(line, end="", flush=True)
        listed = listed or line.startswith("session: ")
        agent = int(line.split()[-1]) if line.startswith(f"{name}: at work") else agent
    return Session(host, agent)


def end(host: "subprocess.Popen[str]") -> None:
    """End one session if it still runs, and with it the agent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A second ^C would leave the rest behind.
    if host.poll() is None:
        host.send_signal(signal.SIGTERM)
        host.send_signal(signal.SIGCONT)
        try:
            host.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            host.kill()
    host.wait()
    assert host.stdout is not None
    host.stdout.close()


def expect(host: "subprocess.Popen[str]", status: int) -> None:
    """Wait for one session's end, and insist on how it ended."""
    ended = host.wait(PATIENCE)
    if ended != status:
        raise SystemExit(f"the demo stops: a session ended with status {ended} instead of {status}")


def demonstrate(home: Path, opened: ExitStack) -> None:
    """Show the main job of `mur`, step by step."""
    (home / "bin").mkdir()
    path = os.pathsep.join((str(home / "bin"), str(MUR.parent), os.environ.get("PATH", os.defpath)))
    environment = {**os.environ, "HOME": str(home), "PATH": path}

    planner = start("An agent is a command. `mur run` hosts one as a session.", "planner", home, environment, opened)
    researcher = start("A second one.", "researcher", home, environment, opened)
    reviewer = start("And a third.", "reviewer", home, environment, opened)
    run("All three are really running, and each answers at its address.", "mur ps", environment)

    host = planner.host
    say("The planner's `mur run` is killed, so it can clean up nothing.", f"kill -KILL {host.pid}")
    killed = time.monotonic()
    host.kill()
    expect(host, -signal.SIGKILL)
    if not wait_for_any_exit([planner.agent], killed + PATIENCE):
        raise SystemExit("the demo stops: an agent outlived its session")
    print(f"Its agent, process {planner.agent}, was gone {1000 * (time.monotonic() - killed):.0f} ms later.")

    host = researcher.host
    say("The researcher's `mur run` is frozen: it exists, but can answer nothing.", f"kill -STOP {host.pid}")
    host.send_signal(signal.SIGSTOP)

    run(
        "The list again takes 5 seconds: that is how long the frozen one is waited for.\n"
        "It stays listed, as unreachable. The killed one is gone, and its record removed.",
        "mur ps",
        environment,
    )

    run("The other two are ended. The frozen one is woken up for it.", "mur stop --all", environment)
    print("\nWhere they were started, their agents have the last word.")
    for session in (researcher, reviewer):
        expect(session.host, 0)
        assert session.host.stdout is not None
        print(session.host.stdout.read(), end="")

    run("Nothing is left.", "mur ps", environment)


CAPSULES = {
    "shouter": "process: {command: [tr, a-z, A-Z]}",
    "sleeper": "process: {command: [sleep, '600']}",
}


def demonstrate_delegation(home: Path, opened: ExitStack) -> None:
    """Show one agent handing work to another, and that nobody is left behind when it dies."""
    project = home / "project"
    for name, process in CAPSULES.items():
        capsule = project / ".murmur" / "artifacts" / name / "1.0"
        capsule.mkdir(parents=True)
        manifest = f"name: {name}\nversion: '1.0'\n{process}\nlifecycle: {{task_acceptance: single}}\n"
        (capsule / "murmur.yaml").write_text(manifest)
    environment = {**os.environ, "HOME": str(home), "PATH": os.pathsep.join((str(MUR.parent), os.environ["PATH"]))}

    run(
        "Work can be handed on: `mur delegate` launches a capsule of the project, gives it a task, prints the result.",
        "mur delegate shouter@1.0 --task 'all is well'",
        environment,
        project,
    )

    say("And now one that takes longer.", "mur delegate sleeper@1.0 --task 'take your time' &")
    parent = subprocess.Popen(
        [MUR, "delegate", "sleeper@1.0", "--task", "take your time"],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    opened.callback(end, parent)
    child = wait_for_child(home)
    run("Both are sessions: who delegates, and who works.", "mur ps", environment)
    say("The one that delegates is killed, so it can tell nobody.", f"kill -KILL {parent.pid}")
    killed = time.monotonic()
    parent.kill()
    expect(parent, -signal.SIGKILL)
    if not wait_for_any_exit([child], killed + PATIENCE):
        raise SystemExit("the demo stops: a child outlived its parent")
    print(f"The child, process {child}, was gone {1000 * (time.monotonic() - killed):.0f} ms later.")
    run("Nobody is left behind.", "mur ps", environment)


def wait_for_child(home: Path) -> int:
    """Wait until the child of a delegation is at work; return its pid."""
    ends_by = time.monotonic() + PATIENCE
    while time.monotonic() < ends_by:
        for record in (home / ".murmur" / "running").glob("*.json"):
            session = json.loads(record.read_text())
            if session.get("spawned_by") and "task_start" in (Path(session["workdir"]) / "trace.jsonl").read_text():
                return int(session["pid"])
        time.sleep(0.05)
    raise SystemExit("the demo stops: a delegation did not begin")


def main() -> None:
    """Run the demo under a temporary home. Whatever happens, end what it started and remove the home."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with ExitStack() as opened:
            home = opened.enter_context(tempfile.TemporaryDirectory(prefix="murmur-demo-"))
            demonstrate(Path(home).resolve(), opened)
            demonstrate_delegation(Path(home).resolve(), opened)
    except subprocess.CalledProcessError as error:
        sys.exit(f"the demo stops: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
