"""What a person sees of several children at work: a line for each, cut to the terminal, and the table in its place."""

import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from murmur.adapters.last_words import LastWords
from murmur.cli.live_lines import Line, drawn, last_words
from murmur.domain.side_by_side import Phase
from tests.cli.capsules_for_tests import Project
from tests.cli.conftest import MUR
from tests.cli.terminal_for_tests import Terminal


def line(title: str, phase: Phase = Phase.WORKING, words: str = "", status: str = "", seconds: float = 12.9) -> Line:
    return Line(title, phase, seconds, status, words)


def texts(lines: list[Line], columns: int = 79, height: int = 23) -> list[str]:
    return [text for text, _ in drawn(lines, columns, height, {})]


def test_a_line_says_who_how_far_and_what_was_said_last() -> None:
    assert texts([
        line("worker@1.0", words="step 1"),
        line("b@1.0 (2)", Phase.WAITING),
        line("c@1.0", Phase.OVER, status="ok"),
    ]) == [
        "worker@1.0  working 12s  step 1",
        "b@1.0 (2)   waiting",
        "c@1.0       ok",
    ]  # fmt: skip


def test_no_line_is_wider_than_it_may_be_also_in_wide_characters() -> None:
    wide = [line("worker@1.0", words="作業" * 50), line("x" * 100), line("a@1.0", words="y" * 100)]
    for columns in (0, 1, 2, 10, 30, 79, 80):
        for text, width in drawn(wide, columns, 23, {"working": "\x1b[36m"}):
            plain = re.sub(r"\x1b\[\d*m", "", text)
            assert width <= columns
            assert sum(2 if ord(character) > 0x2E80 else 1 for character in plain) == width


def test_colour_is_around_the_state_alone_and_none_is_left_open() -> None:
    ((text, width),) = drawn([line("a@1.0", words="on it")], 79, 23, {"working": "<c>"})
    assert text == "a@1.0  <c>working 12s\x1b[0m  on it"
    assert width == len("a@1.0  working 12s  on it")


def test_where_there_is_no_room_for_all_those_at_work_are_shown_and_the_rest_is_counted() -> None:
    lines = [line(f"w{number}@1", Phase.OVER, status="ok") for number in range(5)]
    lines += [line(f"w{number}@1") for number in range(5, 8)]
    lines += [line(f"w{number}@1", Phase.WAITING) for number in range(8, 12)]
    assert texts(lines, height=5) == [
        "w5@1  working 12s",
        "w6@1  working 12s",
        "w7@1  working 12s",
        "w8@1  waiting",
        "and 8 more: 5 ok, 3 waiting",
    ]
    assert texts(lines, height=1) == ["and 12 more: 5 ok, 3 working, 4 waiting"]
    assert len(texts(lines, height=12)) == 12


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain\n", "plain"),
        ("10 %\r50 %\r100 %\n", "100 %"),
        ("50 %\r\n", "50 %"),
        ("a\tb", "a   b"),
        ("\x1b[31mred\x1b[2J", "\\x1b[31mred\\x1b[2J"),
        ("  \n", ""),
    ],
)
def test_what_was_said_last_is_shown_as_it_would_stand_there_and_moves_no_cursor(said: str, shown: str) -> None:
    assert last_words(said) == shown


def test_a_log_tells_its_last_line_when_there_is_more_of_it_and_a_link_is_not_followed(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "stderr.log"
    words = LastWords(tmp_path)
    assert words.news() is None
    log.parent.mkdir()
    log.write_text("one\ntwo\n")
    assert words.news() == "two"
    assert words.news() is None
    with log.open("a") as file:
        file.write("three")
    assert words.news() == "three"
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("four\n")
    assert words.news() is None


# ---- on a terminal ----


def are_at_work(lines: list[str]) -> bool:
    return len(lines) == 2 and all("says" in each for each in lines)


class Watched:
    """Two capsules at work, each of which has said something, and the terminal."""

    def __init__(self, project: Project, opened: ExitStack, *, before: tuple[str, ...] = (), **options: object) -> None:
        self.gates = []
        for name in ("one", "two"):
            gate = project.fifo()
            self.gates.append(gate)
            words = f"{name} says {'much ' * 40}"
            project.put(name, "sh", "-c", f"echo '{words}' >&2; read -r _ <{gate}; tr a-z A-Z")
        argv = [*before, str(MUR), "delegate", "one@1.0", "two@1.0", "--task", "hello"]
        self.terminal = Terminal(argv, project.path, **options)  # type: ignore[arg-type]  # sizes and variables
        opened.callback(self.terminal.close)


def test_on_a_terminal_each_has_a_line_that_is_drawn_over_until_the_table_takes_its_place(project: Project) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened)
        terminal = watched.terminal
        lines = terminal.until(are_at_work)
        for name, each in zip(("one", "two"), lines, strict=True):
            assert re.match(rf"{name}@1\.0  working \d+s  {name} says much ", each)
            assert len(each) == 79
        watched.gates[1].let_on()
        lines = terminal.until(lambda lines: lines[-1].startswith("two@1.0  ok"))
        assert lines[0].startswith("one@1.0  working ")
        assert len(lines) == 2
        watched.gates[0].let_on()
        assert terminal.wait() == 0
    picture = terminal.picture.lines
    assert picture[:4] == ["== one@1.0 ==", "HELLO", "== two@1.0 ==", "HELLO"]
    assert picture[4].split() == ["CAPSULE", "STATUS", "TIME", "SESSION"]
    assert [row.split()[:2] for row in picture[5:]] == [["one@1.0", "ok"], ["two@1.0", "ok"]]
    assert not terminal.picture.is_broken


@pytest.mark.slow  # Two seconds go by.
def test_the_time_goes_on_while_nothing_happens_and_no_faster(project: Project) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened)
        terminal = watched.terminal
        terminal.until(are_at_work)
        before, began = terminal.raw.count("\x1b[2A"), time.monotonic()
        terminal.until(lambda lines: all("working 2s" in each for each in lines))
        drawings = terminal.raw.count("\x1b[2A") - before
        assert drawings <= 2 + time.monotonic() - began
        for gate in watched.gates:
            gate.let_on()
        assert terminal.wait() == 0


def test_a_child_that_says_very_much_is_drawn_a_few_times_a_second(project: Project) -> None:
    project.put("once", "true", lifecycle={"task_acceptance": "none"})
    noisy = project.program(f'head -c 2000000 /dev/zero | tr "\\0" "\\n" >&2; echo done >&2; exec {MUR} "$@"')
    with ExitStack() as opened:
        argv = [str(MUR), "delegate", "once@1.0", "once@1.0"]
        terminal = Terminal(argv, project.path, MURMUR_MUR_BINARY=str(noisy))
        opened.callback(terminal.close)
        began = time.monotonic()
        assert terminal.wait() == 0
        drawings = terminal.raw.count("\x1b[2A")
        assert drawings < 10 + 5 * (time.monotonic() - began)
    assert "starting  done" in terminal.raw
    assert "once: " not in terminal.raw


def test_a_terminal_that_was_resized_gets_lines_of_its_width(project: Project) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened)
        terminal = watched.terminal
        terminal.until(are_at_work)
        terminal.resize(120, 24)
        terminal.picture.columns = 120
        terminal.until(lambda lines: [len(each) for each in lines] == [119, 119])
        for gate in watched.gates:
            gate.let_on()
        assert terminal.wait() == 0


def test_a_narrow_terminal_gets_the_ends_of_ids(project: Project) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened, columns=50)
        for gate in watched.gates:
            gate.let_on()
        assert watched.terminal.wait() == 0
    picture = watched.terminal.picture
    assert not picture.is_broken
    for name, row in zip(("one", "two"), picture.lines[-2:], strict=True):
        assert project.child(name).name.endswith(row.split()[-1])
        assert len(row.split()[-1]) == 12


@pytest.mark.parametrize("term", ["dumb", ""])
def test_on_a_terminal_that_cannot_be_drawn_on_it_is_as_when_piped(project: Project, term: str) -> None:
    project.put("once", "true", lifecycle={"task_acceptance": "none"})
    noisy = project.program(f'echo hello >&2; exec {MUR} "$@"')
    with ExitStack() as opened:
        argv = [str(MUR), "delegate", "once@1.0", "once@1.0"]
        terminal = Terminal(argv, project.path, TERM=term, MURMUR_MUR_BINARY=str(noisy))
        opened.callback(terminal.close)
        assert terminal.wait() == 0
    assert "\x1b" not in terminal.raw
    assert {"once: hello", "once (2): hello"} <= set(terminal.raw.splitlines())


JOB = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
orders, order, *words = sys.argv[1:]
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    if order == "fg":
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(words[0], words)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
with open(orders) as orders:
    while (order := orders.readline().strip()) != "wait":
        if order == "stop":
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
        os.tcsetpgrp(0, pid if order == "fg" else os.getpgrp())
        print("said by the shell:", order, flush=True)
        if order == "fg":
            os.kill(pid, signal.SIGCONT)
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
"""What a shell does with a job: it is told what in a pipe."""


class Job(Watched):
    """The same as a job of a shell."""

    def __init__(self, project: Project, opened: ExitStack, order: str) -> None:
        self._orders = project.fifo()
        super().__init__(project, opened, before=(sys.executable, "-c", JOB, str(self._orders), order))

    def let_on(self) -> int:
        """Let both go on, and read to the end."""
        for gate in self.gates:
            gate.let_on()
        self.order("wait")
        return self.terminal.wait()

    def order(self, order: str) -> None:
        self._orders.write(f"{order}\n")
        if order != "wait":
            self.terminal.until(lambda lines: f"said by the shell: {order}" in lines)


@pytest.mark.spec("M4")
def test_in_the_background_it_draws_nothing_and_tells_as_when_piped(project: Project) -> None:
    with ExitStack() as opened:
        job = Job(project, opened, "bg")
        assert job.let_on() == 0
    assert "\x1b" not in job.terminal.raw
    assert job.terminal.picture.lines[:4] == ["== one@1.0 ==", "HELLO", "== two@1.0 ==", "HELLO"]


def test_once_in_the_background_it_draws_no_more(project: Project) -> None:
    with ExitStack() as opened:
        job = Job(project, opened, "fg")
        job.terminal.until(are_at_work)
        job.order("bg")
        before = len(job.terminal.raw)
        assert job.let_on() == 0
    assert "\x1b" not in job.terminal.raw[before:]
    assert [each.split()[0] for each in job.terminal.picture.lines[:2]] == ["one@1.0", "two@1.0"]
    assert job.terminal.picture.lines[3:5] == ["== one@1.0 ==", "HELLO"]


def test_after_it_was_stopped_it_begins_afresh_beneath_what_the_shell_said(project: Project) -> None:
    with ExitStack() as opened:
        job = Job(project, opened, "fg")
        job.terminal.until(are_at_work)
        job.order("stop")
        job.order("fg")
        lines = job.terminal.until(lambda lines: are_at_work(lines[4:]))
        assert are_at_work(lines[:2])
        assert job.let_on() == 0
    lines = job.terminal.picture.lines
    assert are_at_work(lines[:2])
    assert lines[2:6] == ["said by the shell: stop", "said by the shell: fg", "== one@1.0 ==", "HELLO"]


def test_where_there_are_more_than_lines_two_of_the_terminal_are_left_and_no_screen_is_cleared(
    project: Project,
) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened, lines=3)
        lines = watched.terminal.until(lambda lines: lines == ["and 2 more: 2 working"])
        for gate in watched.gates:
            gate.let_on()
        assert watched.terminal.wait() == 0
    assert len(lines) == 1
    assert "\x1b[J" not in watched.terminal.raw


def test_lines_that_are_no_longer_drawn_are_not_left_there(project: Project) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened)
        watched.terminal.until(are_at_work)
        watched.terminal.resize(80, 3)
        watched.terminal.until(lambda lines: lines == ["and 2 more: 2 working"])
        watched.terminal.resize(80, 24)
        watched.terminal.until(are_at_work)
        for gate in watched.gates:
            gate.let_on()
        assert watched.terminal.wait() == 0


@pytest.mark.parametrize("lines", [1, 2])
def test_on_a_terminal_without_room_it_is_as_when_piped(project: Project, lines: int) -> None:
    with ExitStack() as opened:
        watched = Watched(project, opened, lines=lines)
        for gate in watched.gates:
            gate.let_on()
        assert watched.terminal.wait() == 0
    assert "\x1b" not in watched.terminal.raw


def test_a_warning_stands_above_the_lines_and_tears_none(project: Project) -> None:
    up, gate = project.fifo(), project.fifo()
    project.put("worker", "sh", "-c", f"echo up >{up}; read -r _ <{gate}; cat")
    with ExitStack() as opened:
        argv = [str(MUR), "delegate", "worker@1.0", "worker@1.0", "--task", "x"]
        terminal = Terminal(argv, project.path)
        opened.callback(terminal.close)
        words: list[str] = []
        while words.count("up") < 2:
            words += up.line().split()
        # What the child's end is to be recorded in cannot be written to any more.
        for records in [each for each in project.records if "children" in each.parts]:
            (records / "completion.json").mkdir()
        gate.let_on()
        gate.let_on()
        terminal.wait()
    warned = [number for number, each in enumerate(terminal.picture.lines) if each.startswith("warning: ")]
    table = next(number for number, each in enumerate(terminal.picture.lines) if each.startswith("CAPSULE "))
    assert warned
    assert max(warned) < table
    assert sum("worker@1.0" in each for each in terminal.picture.lines[:table]) == 2
