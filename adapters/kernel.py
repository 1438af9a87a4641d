"""Which kernel is this? The one place that picks a platform: procfs and pidfds on Linux, libproc on macOS."""

import sys

if sys.platform == "darwin":
    from murmur.adapters import libproc as kernel
else:
    from murmur.adapters import procfs as kernel

__all__ = ["kernel"]
