"""Which processes are there, and how is exactly one of them signalled? (K1-K5, L5-L8).

The one place that sends signals to processes named by records. A session host signals its own command's group
elsewhere (`adapters.command`).
"""

import os
import signal as signals
import sys
from collections.abc import Sequence

from murmur.adapters.kernel import kernel
from murmur.adapters.reasons import reason_of
from murmur.domain.origin import Here, Origin
from murmur.domain.process import Claim, ProcessIdentity, ProcessReading, judge
from murmur.domain.signals import AlreadyGone, Refused, Sent, SignalOutcome, StopSignal, refusal_before_signal

_NUMBERS = {
    # A stopped process keeps SIGTERM pending until it is continued (K4).
    StopSignal.TERM: (signals.SIGTERM, signals.SIGCONT),
    StopSignal.KILL: (signals.SIGKILL,),
}


class SystemProcesses:
    """The running kernel's processes."""

    def here(self) -> Here:
        """Say which machine, boot and namespaces pids and start tokens are read in."""
        return kernel.here()

    def readings(self, identities: Sequence[ProcessIdentity]) -> Sequence[ProcessReading]:
        """Look at each identity's pid once, in order (L2-L7). Raises `OutOfDescriptors`."""
        read = kernel.read_process
        return [read(identity.pid) for identity in identities]

    def signal(self, claim: Claim, signal: StopSignal) -> SignalOutcome:
        """Verify the claim and signal its process, through one pidfd where there are pidfds (K2)."""
        with kernel.held(claim.identity.pid) as (pidfd, reading):
            refusal = refusal_before_signal(judge(claim, reading, kernel.here()))
            if refusal is not None:
                return refusal
            return _send(pidfd, claim.identity.pid, _NUMBERS[signal])

    def own_origin(self) -> Origin:
        """Say who and where this process is, as its session's origin file records it (L8)."""
        pid = os.getpid()
        reading, here = kernel.read_process(pid), kernel.here()
        return Origin(
            pid, reading.start_token, here.machine_id, here.boot_id, here.pid_namespace, here.time_namespace,
            reading.pidfd_inode,
        )  # fmt: skip


def _send(pidfd: int | None, pid: int, numbers: tuple[signals.Signals, ...]) -> SignalOutcome:
    """Send the first signal, and the others after it if there is still somebody to get them."""
    for sent, number in enumerate(numbers):
        try:
            if pidfd is None or sys.platform == "darwin":
                os.kill(pid, number)
            else:
                signals.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return Sent() if sent else AlreadyGone()
        except OSError as error:
            return Sent() if sent else Refused(reason_of(error))
    return Sent()
