"""What an update frees, the next one gets again without asking the system for fresh pages."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from duetto import TD3, learners
from duetto.networks.spaces import Box

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(48 << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

alone = [faults() for _ in range(2)]
space = Box((1,), "float32", (-1.0,), (1.0,))
learners.build(sys.argv[1], TD3(hidden=(8,)), space, space)
print(*alone, *[faults() for _ in range(2)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_freed_memory_stays_with_a_process_that_learns(backend: str):
    done = subprocess.run([sys.executable, "-c", FAULTS, backend], capture_output=True, text=True, check=True)
    _, without, _, again = map(int, done.stdout.split())
    assert without >= 20  # 24 pages of 2 MiB at the least, 12,288 of 4 KiB
    assert again < without / 5
