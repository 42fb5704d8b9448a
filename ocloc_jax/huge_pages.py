"""Large pages of memory for XLA's CPU programs.

Such a program takes fresh memory for every step and gives it back. In pages of 4 kB,
the kernel spent a quarter of a training step on handing them out; of 2 MB, next to
nothing (docs/performance.md). Only the environment in which a process starts can ask
the C library for them.
"""

import os
import sys

VARIABLE, REQUEST = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"


def ask_for() -> None:
    """Starts this process anew with the request, unless it is there already.

    What the user has set stays. Other systems and older C libraries do not care.
    """
    if sys.platform == "linux" and VARIABLE not in os.environ:
        os.environ[VARIABLE] = REQUEST
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
