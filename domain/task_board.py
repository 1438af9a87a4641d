"""Which task runs, which wait, which are over, and what may still happen to each?

A board without I/O: ids come from outside, running a task is an adapter's work. Every task that was ever offered is
in exactly one state, and reaches at most one terminal one.
"""

from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, assert_never

from murmur.domain.value import Value

if TYPE_CHECKING:
    from murmur.domain.conversation import Conversations

ENDED_KEPT: Final = 1000
"""How many ended tasks stay readable."""
RESULTS_KEPT: Final = 8 * 1024 * 1024
"""Characters that are kept in memory over all ended tasks; older results are in their files alone."""

Acceptance = Literal["none", "single", "queue"]
AfterTask = Literal["exit", "sleep"]


class TaskState(Enum):
    """The states of a task on the wire."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can happen to the task any more."""
        return self not in (TaskState.SUBMITTED, TaskState.WORKING)


class Task:
    """One task. Only the board changes it."""

    __slots__ = ("cancel_asked", "context_id", "id", "message", "result", "state", "text")

    def __init__(self, task_id: str, context_id: str, text: str) -> None:
        self.id = task_id
        self.context_id = context_id
        self.text = text
        """What the command is to do; dropped when the task is over."""
        self.state = TaskState.SUBMITTED
        self.message: str | None = None
        """Why it failed, was canceled or was rejected."""
        self.result: str | None = None
        """The command's output, as much of it as an artifact carries."""
        self.cancel_asked = False

    @property
    def size(self) -> int:
        """How many characters its result and its reason hold."""
        return len(self.result or "") + len(self.message or "")


class Unknown(Value):
    """There is no task of that id, or it ended too long ago."""


class Canceled(Value):
    """The task is canceled, now or before."""

    task: Task


class Stopping(Value):
    """The task runs: its command is to be ended, and the task is canceled when it has."""

    task: Task


class NotCancelable(Value):
    """The task is over in another way."""

    task: Task


CancelAnswer = Unknown | Canceled | Stopping | NotCancelable


class TaskBoard:
    """The tasks of one session."""

    def __init__(
        self,
        acceptance: Acceptance,
        after_task: AfterTask = "exit",
        queue_depth: int = 1,
        conversations: "Conversations | None" = None,
    ) -> None:
        """`queue_depth` is how many tasks may wait besides the one that runs.

        `conversations`, where there is one, remembers the tasks that are completed.
        """
        self.acceptance = acceptance
        self.after_task = after_task
        self.queue_depth = queue_depth
        self.conversations = conversations
        self.paused = False
        """No further task starts; what runs goes on."""
        self.draining = False
        """No further task is taken, and the session ends with the last one."""
        self.running: Task | None = None
        self.canceled: list[tuple[Task, str]] = []
        """Tasks newly canceled, each with its phase, for whoever traces them and empties this."""
        self._waiting: deque[Task] = deque()
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self._rejected: OrderedDict[str, Task] = OrderedDict()
        self._size = 0
        self._ran = False

    def offer(self, task_id: str, context_id: str, text: str) -> Task:
        """Take a task in: `submitted`, or `rejected` with the reason."""
        task = Task(task_id, context_id, text)
        reason = self._refusal()
        if reason is None:
            self._waiting.append(task)
        else:
            self._end(task, TaskState.REJECTED, message=reason)
        return task

    def start_next(self) -> Task | None:
        """Make the next waiting task the running one and return it; `None` while there is nothing to start."""
        if self.running is not None or self.paused or not self._waiting:
            return None
        self.running = self._waiting.popleft()
        self.running.state = TaskState.WORKING
        self._ran = True
        return self.running

    def finished(self, *, succeeded: bool, result: str, message: str | None) -> Task:
        """End the running task: as canceled if that was asked before, else as its command ended."""
        task = self.running
        assert task is not None
        self.running = None
        task.result = result
        if task.cancel_asked:
            self._end(task, TaskState.CANCELED, message="the task was canceled")
        elif succeeded:
            if self.conversations is not None:
                self.conversations.add(task.context_id, task.id, asked=task.text, answered=result)
            self._end(task, TaskState.COMPLETED)
        else:
            self._end(task, TaskState.FAILED, message=message)
        return task

    def find(self, task_id: str) -> Task | None:
        """Return a task by its id, whatever its state."""
        if self.running is not None and self.running.id == task_id:
            return self.running
        waiting = next((task for task in self._waiting if task.id == task_id), None)
        return waiting or self._ended.get(task_id) or self._rejected.get(task_id)

    def cancel(self, task_id: str) -> CancelAnswer:
        """Cancel a task. Idempotent: asking again for a canceled one answers the same."""
        task = self.find(task_id)
        if task is None:
            return Unknown()
        match task.state:
            case TaskState.SUBMITTED:
                self._waiting.remove(task)
                self._end(task, TaskState.CANCELED, message="the task was canceled before it started")
                self.canceled.append((task, "waiting"))
                return Canceled(task)
            case TaskState.WORKING:
                if not task.cancel_asked:
                    task.cancel_asked = True
                    self.canceled.append((task, "running"))
                return Stopping(task)
            case TaskState.CANCELED:
                return Canceled(task)
            case TaskState.COMPLETED | TaskState.FAILED | TaskState.REJECTED:
                return NotCancelable(task)
            case _:
                assert_never(task.state)

    def cancel_all(self) -> list[Task]:
        """Cancel every task that is not over, the running one last; return them."""
        waiting = list(self._waiting)
        for task in waiting:
            self.cancel(task.id)
        if self.running is None:
            return waiting
        self.cancel(self.running.id)
        return [*waiting, self.running]

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return len(self._waiting)

    @property
    def has_run(self) -> bool:
        """Whether any task was started."""
        return self._ran

    @property
    def is_over(self) -> bool:
        """Whether the session has nothing more to do and is to end."""
        if self.running is not None or self._waiting:
            return False
        return self.draining or (self._ran and self.after_task == "exit" and self.acceptance != "none")

    def _refusal(self) -> str | None:
        if self.acceptance == "none":
            return "this session accepts no tasks"
        if self.draining or self.is_over:
            return "this session is ending and accepts no further task"
        if self.acceptance == "single":
            if self.after_task == "exit" and (self._ran or self._waiting):
                return "this session takes one task, and has it"
            return "this session is at work on another task" if self.running or self._waiting else None
        # What waits for an idle session is about to run, and takes no place in the queue.
        room = self.queue_depth + (self.running is None and not self.paused)
        waiting = len(self._waiting)
        return f"the queue is full: {waiting} task{'' if waiting == 1 else 's'} wait" if waiting >= room else None

    def _end(self, task: Task, state: TaskState, *, message: str | None = None) -> None:
        assert not task.state.is_terminal
        task.state, task.message, task.text = state, message, ""
        # Apart, so that no flood of tasks for a full queue pushes out the results of others.
        kept = self._rejected if state is TaskState.REJECTED else self._ended
        kept[task.id] = task
        while len(kept) > ENDED_KEPT:
            _, dropped = kept.popitem(last=False)
            self._size -= dropped.size if kept is self._ended else 0
        self._size += task.size if kept is self._ended else 0
        self._forget_results(task)

    def _forget_results(self, newest: Task) -> None:
        """Leave the oldest results to their files until the rest is no more than memory may hold."""
        for task in self._ended.values():
            if self._size <= RESULTS_KEPT or task is newest:
                return
            told = f"[the result is in out/result_{task.id}.txt]"
            if task.result is not None and len(task.result) > len(told):
                self._size += len(told) - len(task.result)
                task.result = told
