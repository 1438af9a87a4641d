"""A launch that fails says why, in the contract's words, and leaves nothing of the child (X1, X3, X5, X6, Y2)."""

import errno
import json
import os
import resource
import signal
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from murmur.adapters import child_launch, child_process, child_readiness, spawning, staging
from murmur.adapters.beneath import NotReached
from murmur.adapters.launching import LaunchGivenUp
from murmur.adapters.spawning import mur_binary
from murmur.domain.errors import ChildNotLaunched, MurmurError, OutOfDescriptors, RegistryUnusable
from murmur.domain.launch.readiness import ReadinessRefused
from tests.adapters.launching.children_for_tests import (
    GRANT,
    OBEDIENT,
    PATIENCE,
    STUBBORN,
    Launching,
    end,
    own_children,
    request_from,
    spawner,
)
from tests.adapters.processes_for_tests import NO_PIDFDS, exhaust_pidfds, open_descriptors


@contextmanager
def leaving_nothing(launching: Launching) -> Iterator[None]:
    """Insist that a refusal leaves no descriptor, no child, no zombie and no outstanding delegation at once."""
    descriptors, children = open_descriptors(), own_children()
    yield
    assert open_descriptors() == descriptors
    assert own_children() == children
    outstanding = launching.parent / "delegations"
    assert not outstanding.exists() or list(outstanding.iterdir()) == []


def refusal_of(launching: Launching, **options: float) -> str:
    """Launch a watched child; return what the refusal says, with the child's folder as `<dir>`."""
    with leaving_nothing(launching), pytest.raises(ChildNotLaunched) as refused:
        launching.launch(request_from(launching.parent, spawner=spawner()), **options)
    folders = list((launching.parent / "children").iterdir())
    message = refused.value.message
    for folder in folders:
        message = message.replace(str(folder), "<dir>")
    return message


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a moment instead of 5 s for what may never end."""
    monkeypatch.setattr(child_readiness, "DRAIN_TIMEOUT", 0.3)


@pytest.mark.spec("X6")
@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("exit 3", "exit status: 3"),
        ("exit 0", "exit status: 0"),
        ("kill -KILL $$", "signal: 9 (SIGKILL)"),
        ("kill -TERM $$", "signal: 15 (SIGTERM)"),
    ],
)
def test_a_child_that_exits_before_it_is_ready_is_quoted_with_its_status_and_tail(
    code: str, how: str, launching: Launching
) -> None:
    launching.program(f"echo one >&2; printf 'the reason\\377' >&2; {code}")
    assert refusal_of(launching) == (
        f"the child capsule '<dir>' exited without reporting a launch line ({how}): one\nthe reason�"
    )


@pytest.mark.spec("X4", "X6")
def test_the_tail_of_a_refusal_is_its_last_twenty_lines(launching: Launching) -> None:
    launching.program("seq 1 1000 >&2; exit 1")
    assert refusal_of(launching).partition("): ")[2] == "\n".join(map(str, range(981, 1001)))


@pytest.mark.spec("X5", "X6")
@pytest.mark.parametrize(
    "code",
    [
        "echo 'Welcome!'; ready; orphaned",
        'printf \'{"session_id": "ses\'',
        "echo; ready; orphaned",
        "printf '\\377\\n'",
    ],
    ids=["a banner first", "half a line at the end", "an empty line first", "no text"],
)
def test_a_first_line_that_is_no_report_is_refused_and_nothing_after_it_is_read(
    code: str, launching: Launching
) -> None:
    launching.program(code)
    assert refusal_of(launching).startswith("the child capsule's first --json line did not parse: ")


@pytest.mark.spec("X5")
@pytest.mark.parametrize("stays", [True, False])
def test_ten_megabytes_without_a_newline_are_refused_in_bounded_memory(stays: bool, launching: Launching) -> None:
    after = "orphaned" if stays else "exit 0"
    launching.program(f"head -c 10000000 /dev/zero | tr '\\0' x; {after}")
    tracemalloc.start()
    try:
        refusal = refusal_of(launching)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refusal == "the child capsule's first --json line did not parse: it is longer than 1 MiB"
    assert peak < 5_000_000


@pytest.mark.spec("X5", "X6")
def test_a_child_that_never_prints_is_ended_when_its_time_is_over(launching: Launching) -> None:
    launching.program("orphaned")
    begun = time.monotonic()
    said = refusal_of(launching, ready_timeout=0.2)
    assert said == "the child capsule '<dir>' did not report a launch line within 0.2s"
    assert 0.2 <= time.monotonic() - begun < PATIENCE


@pytest.mark.spec("X3", "E1")
def test_one_that_ignores_sigterm_too_is_killed(launching: Launching) -> None:
    launching.program("trap '' TERM; orphaned")
    assert "within 0.2s" in refusal_of(launching, ready_timeout=0.2, grace=0.1)


@pytest.mark.spec("X6")
@pytest.mark.usefixtures("impatient")
def test_a_child_that_closes_its_output_and_lives_on_is_ended(launching: Launching) -> None:
    launching.program("exec >&-; orphaned")
    assert refusal_of(launching) == "the child capsule '<dir>' closed its output without reporting a launch line"


@pytest.mark.spec("X6")
def test_a_child_that_closes_its_output_and_exits_soon_is_one_that_exited(launching: Launching) -> None:
    launching.program("exec >&-; echo why >&2; exit 4")
    assert "exited without reporting a launch line (exit status: 4): why" in refusal_of(launching)


@pytest.mark.spec("X3", "X4", "X6")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kept", ["stdout", "stderr", "both"])
def test_what_a_child_leaves_behind_holds_up_no_refusal_and_no_descriptor(kept: str, launching: Launching) -> None:
    redirects = {"stdout": "2>/dev/null", "stderr": ">/dev/null", "both": ""}[kept]
    launching.program(f"sleep 1000 {redirects} & echo $! > {launching.words.path}; echo why >&2; exit 5")
    begun = time.monotonic()
    try:
        said = refusal_of(launching)
    finally:
        end(int(launching.words.next()))
    assert said == "the child capsule '<dir>' exited without reporting a launch line (exit status: 5): why"
    assert time.monotonic() - begun < 5.0


@pytest.mark.spec("X6")
@pytest.mark.parametrize(
    ("program", "why"),
    [("missing", "no such file or directory"), ("plain", "permission denied"), ("folder", "permission denied")],
)
def test_a_program_that_cannot_be_started_is_named(program: str, why: str, launching: Launching) -> None:
    (launching.place / "plain").write_text("#!/bin/sh\n")
    (launching.place / "folder").mkdir()
    path = launching.use(launching.place / program)
    assert refusal_of(launching) == f"failed to start the child capsule process '{path}': {why}"


@pytest.mark.spec("C4")
def test_a_program_is_named_by_the_environment_and_a_relative_path_is_meant_from_here(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = launching.program(OBEDIENT)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("MURMUR_MUR_BINARY", "./child")
    child = launching.launch()
    assert child.argv[0] == str(path)
    assert mur_binary({"MURMUR_MUR_BINARY": "mur"}) == "mur"


@pytest.mark.spec("C4")
@pytest.mark.parametrize("environment", [{}, {"MURMUR_MUR_BINARY": ""}])
def test_our_own_mur_is_beside_the_interpreter_that_runs(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ChildNotLaunched, match=f"{tmp_path}/mur does not exist"):
        mur_binary(environment)
    (tmp_path / "mur").touch()
    assert mur_binary(environment) == str(tmp_path / "mur")


@pytest.mark.spec("X6")
def test_a_child_that_died_before_it_read_its_approval_is_quoted(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The moment between start and approval is stretched until the child is gone.
    monkeypatch.setattr(
        spawning, "_restore_limit", lambda pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) and None
    )
    path = launching.program("")
    path.write_text("#!/bin/sh\necho why >&2\nexit 9\n")
    assert refusal_of(launching) == (
        "the child capsule '<dir>' exited before its launch grant could be handed over (exit status: 9): why"
    )


@pytest.mark.spec("X6")
@pytest.mark.usefixtures("impatient")
def test_a_child_that_closed_its_input_and_lives_is_ended(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = launching.program("")
    path.write_text(
        f"#!/bin/sh\nexec <&-\necho closed > {launching.words.path}\nread -r _ < /dev/fd/$MURMUR_SPAWNER_LIFELINE\n"
    )
    monkeypatch.setattr(spawning, "_restore_limit", lambda pid: launching.words.next() and None)
    assert refusal_of(launching) == "failed to hand the child its launch grant: broken pipe"


def test_a_refusal_never_shows_the_approval(launching: Launching) -> None:
    launching.program("echo $grant; orphaned")
    with pytest.raises(ChildNotLaunched) as refused:
        launching.launch()
    assert GRANT not in str(refused.value) + repr(refused.value.__cause__)


REPORTS: dict[str, tuple[dict[str, str | None], str]] = {
    "elsewhere": ({"records_dir": "/tmp/ses_1"}, "which is not"),
    "up and down": ({"records_dir": "{root}/place/../place/ses_1"}, "which is not"),
    "relative": ({"records_dir": "work/ses_1"}, "which is not"),
    "of another session": ({"records_dir": "{root}/place/ses_2"}, "which is not"),
    "none": ({"records_dir": None}, "carried no records_dir"),
    "no session": ({"session_id": None}, "carried no session_id"),
    "an empty session": ({"session_id": ""}, "which is not"),
    "missing": ({"records_dir": "{root}/place/missing/ses_1"}, "no such file or directory"),
    "through a link": ({"records_dir": "{root}/linked/ses_1"}, "{root}/linked: it is a symbolic link"),
    "a link itself": ({"session_id": "ses_l", "records_dir": "{root}/place/ses_l"}, "ses_l: it is a symbolic link"),
    "a file": ({"session_id": "ses_f", "records_dir": "{root}/place/ses_f"}, "ses_f: not a directory"),
    "a null": ({"session_id": "a\0b", "records_dir": "{root}/place/a\0b"}, "which is not"),
}


@pytest.mark.spec("Y1", "Y2", "X6")
@pytest.mark.parametrize("report", REPORTS)
def test_records_that_are_not_where_they_must_be_refuse_the_delegation(
    report: str, launching: Launching, home: Path
) -> None:
    root = home / ".murmur/records"
    (root / "place" / "ses_1").mkdir(parents=True)
    (root / "linked").symlink_to(root / "place")
    (root / "place" / "ses_l").symlink_to(root / "place" / "ses_1")
    (root / "place" / "ses_f").touch()
    changes, why = REPORTS[report]
    line: dict[str, str | None] = {"session_id": "ses_1", "records_dir": f"{root}/place/ses_1", "url": "localhost:1"}
    line.update(changes)
    text = json.dumps({name: value for name, value in line.items() if value is not None})
    (launching.place / "line").write_text(text.replace("{root}", str(root)) + "\n")
    launching.program(f"cat '{launching.place / 'line'}'; orphaned")
    assert why.replace("{root}", str(root)) in refusal_of(launching)


@pytest.mark.spec("Y2")
def test_a_home_behind_a_link_is_fine(
    launching: Launching, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    launching.program(OBEDIENT)
    child = launching.launch()
    assert child.records_dir.is_relative_to(tmp_path / "link")


@pytest.mark.spec("H1", "X3")
def test_no_child_is_started_where_its_records_could_not_be_found(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    launching.program(f"echo started > {launching.words.path}; {OBEDIENT}")
    monkeypatch.setenv("HOME", "")
    with leaving_nothing(launching), pytest.raises(RegistryUnusable):
        launching.launch()
    assert not (launching.parent / "children").exists()


@pytest.mark.spec("X1")
def test_a_launch_that_cannot_have_a_lifeline_makes_nothing(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(child_launch, "Lifeline", refuse)
    with leaving_nothing(launching), pytest.raises(ChildNotLaunched, match="lifeline could not be created"):
        launching.launch()
    assert list(launching.parent.iterdir()) == []


@pytest.mark.spec("X3")
def test_a_launch_without_descriptors_fails_clearly_wherever_they_run_out(launching: Launching) -> None:
    launching.program(OBEDIENT)
    launching.launch().close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said, launched = set(), 0
    for spare in range(40):
        with leaving_nothing(launching):
            highest = max(int(entry.split()[0]) for entry in open_descriptors())
            filler = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest + 1 - len(open_descriptors()))]
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(filler, default=highest) + 2 + spare, hard))
                child = launching.launch(request_from(launching.parent, spawner=spawner()))
            except (ChildNotLaunched, OutOfDescriptors) as error:
                said.add(error.message.partition(":")[0])
                child = None
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for descriptor in filler:
                    os.close(descriptor)
            if child is not None:
                launched += 1
                child.close()
        if launched == 2:
            break
    assert launched == 2
    assert any("lifeline" in words for words in said)
    assert any("work folder" in words for words in said)
    assert any("failed to start" in words for words in said)


@pytest.mark.spec("X3")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_refuses_a_task_and_starts_nothing(
    number: int, launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, content: bytes) -> None:
        raise OSError(number, os.strerror(number))

    launching.program(f"echo started > {launching.words.path}; {OBEDIENT}")
    monkeypatch.setattr(staging, "_write_all", refuse)
    with leaving_nothing(launching), pytest.raises(ChildNotLaunched, match=r"task could not be written to .*task\.md"):
        launching.launch(script_task="do it")


@pytest.mark.spec("X3")
@pytest.mark.parametrize("what", ["missing", "a link", "a file"])
def test_a_parent_without_a_records_directory_launches_nothing(what: str, launching: Launching) -> None:
    place = launching.place / "records"
    if what == "a link":
        place.symlink_to(launching.parent)
    elif what == "a file":
        place.touch()
    with leaving_nothing(launching), pytest.raises(ChildNotLaunched, match=f"{place}: "):
        launching.launch(request_from(place))


@pytest.mark.spec("C2")
def test_children_swapped_for_a_link_refuse_the_launch(launching: Launching, tmp_path: Path) -> None:
    launching.program(OBEDIENT)
    (tmp_path / "elsewhere").mkdir()
    (launching.parent / "children").symlink_to(tmp_path / "elsewhere")
    with leaving_nothing(launching), pytest.raises(ChildNotLaunched, match="children: it is a symbolic link"):
        launching.launch()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.spec("W6", "X3")
def test_a_delegation_that_cannot_be_entered_starts_nothing(launching: Launching, tmp_path: Path) -> None:
    launching.program(f"echo started > {launching.words.path}; {OBEDIENT}")
    (launching.parent / "delegations").symlink_to(tmp_path)
    descriptors = open_descriptors()
    with pytest.raises(ChildNotLaunched, match="delegations: it is a symbolic link"):
        launching.launch(request_from(launching.parent, spawner=spawner()))
    assert open_descriptors() == descriptors


def test_a_launch_that_is_given_up_ends_its_child(launching: Launching) -> None:
    given_up = LaunchGivenUp()
    given_up.give_up()
    launching.program(f"echo $$ > {launching.words.path}; orphaned")
    with leaving_nothing(launching), pytest.raises(ChildNotLaunched, match="given up before it reported itself"):
        launching.launch(given_up=given_up)


@pytest.mark.spec("X3")
def test_a_launch_that_is_interrupted_ends_its_child(launching: Launching, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(line: bytes, root: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(child_launch, "parse_readiness", interrupted)
    launching.program(OBEDIENT)
    with leaving_nothing(launching), pytest.raises(KeyboardInterrupt):
        launching.launch(request_from(launching.parent, spawner=spawner()))


@pytest.mark.spec("E5")
@pytest.mark.parametrize("why", NO_PIDFDS)
def test_sigchld_ignored_and_no_pidfds_refuse_a_launch(
    why: str, launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust_pidfds(why, monkeypatch)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with leaving_nothing(launching), pytest.raises(ChildNotLaunched, match="SIGCHLD is ignored"):
            launching.launch()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not (launching.parent / "children").exists()


@pytest.mark.spec("X3")
def test_a_child_that_nobody_can_watch_is_killed(launching: Launching, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, work: object) -> None:
        raise RuntimeError("can't start new thread")

    exhaust_pidfds("missing", monkeypatch)
    monkeypatch.setattr(child_process, "start_thread", refuse)
    launching.program(STUBBORN)
    assert refusal_of(launching) == "the child capsule cannot be watched: no thread can be started"


def test_every_refusal_is_one_for_a_person() -> None:
    assert issubclass(ChildNotLaunched, MurmurError)
    assert not issubclass(NotReached, MurmurError)
    assert not issubclass(ReadinessRefused, MurmurError)
