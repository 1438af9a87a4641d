"""Which packages take the most of a command's imports?"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.machines import environment

_LARGEST = 5
_RUN = "import sys; sys.argv[0] = 'mur'; from murmur.cli.main import main; sys.exit(main())"
_IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


def largest_imports(home: Path, arguments: Sequence[str]) -> str:
    """Tell the largest in milliseconds of their own modules, and all of it. A command that stays is ended.

    With Python's own report of them, which itself costs something: the shares count, not the sum.
    """
    with (home / "imports").open("w+") as report:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-c", _RUN, *arguments],
            cwd=home,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=report,
            text=True,
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()
        report.seek(0)
        taken: dict[str, float] = {}
        for line in report:
            match = _IMPORTED.match(line)
            if match is not None:
                package = match[2].partition(".")[0]
                taken[package] = taken.get(package, 0.0) + int(match[1]) / 1000
    largest = sorted(taken.items(), key=lambda each: -each[1])[:_LARGEST]
    return ", ".join(f"{package} {taken:.0f}" for package, taken in largest) + f"; all {sum(taken.values()):.0f} ms"
