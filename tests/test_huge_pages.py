"""A process that starts itself anew with a request for large pages."""

import os
import subprocess
import sys

import pytest

from ocloc_jax import huge_pages

PROGRAM = """
import os, sys
from ocloc_jax import huge_pages
huge_pages.ask_for()
print(os.getpid(), os.environ.get(huge_pages.VARIABLE), *sys.argv[1:])
"""


def run(*arguments: str, **environment: str) -> tuple[int, list[str]]:
    inherited = {k: v for k, v in os.environ.items() if k != huge_pages.VARIABLE}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process.pid, process.communicate()[0].split()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the C library of Linux")
def test_the_same_process_starts_anew_with_the_same_arguments():
    process, words = run("--config=a b", "c")
    assert words == [str(process), huge_pages.REQUEST, "--config=a", "b", "c"]


def test_what_the_user_asks_for_stays():
    asked = {huge_pages.VARIABLE: "glibc.malloc.check=0"}
    assert run(**asked)[1][1] == "glibc.malloc.check=0"
