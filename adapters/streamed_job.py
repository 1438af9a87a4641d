"""What is told of one piece of work, in its order: that it has begun, what it says, how it has ended?"""

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from murmur.adapters.command_output import Output
from murmur.adapters.output_follower import FollowedOutput
from murmur.adapters.reasons import reason_of
from murmur.domain.stream_frames import Frame, output_frame, status_frame


class StreamedJob:
    """A task, or a session's only command, whose outputs are followed."""

    def __init__(self, task_id: str, context_id: str, outputs: Sequence[Output], *, from_tail: bool) -> None:
        """Follow the outputs from their beginning, or only their last part."""
        self.task_id = task_id
        self.context_id = context_id
        self.is_begun = False
        """Whether anything was told."""
        self.end: Frame | None = None
        """What is told last, once it is known."""
        self._outputs: list[FollowedOutput] = []
        self._untold = ""
        for output in outputs:
            try:
                self._outputs.append(FollowedOutput.open(output, from_tail=from_tail))
            except OSError as error:  # For want of a descriptor. What is not followed is in its file all the same.
                self._untold += f"[{output.name} is not shown here: {reason_of(error)}]\n"

    @property
    def descriptors(self) -> Sequence[int]:
        """The files that grow while it works."""
        return [output.descriptor for output in self._outputs]

    def ended(self, end: Frame) -> None:
        """Take in that it has ended: what is in its files by now is all it said."""
        self.end = end
        for output in self._outputs:
            with suppress(OSError):
                output.end()

    def skip_to_tail(self) -> None:
        """Leave out all but the last part of what nobody has followed."""
        for output in self._outputs:
            with suppress(OSError):
                output.skip_to_tail()

    def begin(self) -> list[Frame]:
        """Tell that it has begun."""
        self.is_begun = True
        frames = [status_frame(self.task_id, self.context_id, "working", None, is_final=False)]
        if self._untold:
            frames.append(output_frame(self.task_id, self.context_id, "stderr", self._untold, is_first=True))
        return frames

    def read_on(self) -> tuple[bool, list[Frame]]:
        """Read a piece of each output; say whether there was anything, and tell what is whole lines by now."""
        any_read, frames = False, []
        for output in self._outputs:
            with suppress(OSError):
                has_read, text = output.read()
                any_read = any_read or has_read
                frames += self._told(output, text)
        return any_read, frames

    def finish(self) -> list[Frame]:
        """Tell its end, before that what was held back, and how much was left out if not all was read."""
        assert self.end is not None
        frames = [] if self.is_begun else self.begin()
        for output in self._outputs:
            frames += self._told(output, output.rest())
        return [*frames, self.end]

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        with ExitStack() as opened:
            for output in self._outputs:
                opened.callback(output.close)
        self._outputs = []

    def _told(self, output: FollowedOutput, text: str) -> list[Frame]:
        if not text:
            return []
        is_first, output.has_begun = not output.has_begun, True
        return [output_frame(self.task_id, self.context_id, output.channel, text, is_first=is_first)]
