"""Measures functions on a device by the way in which packets reach them: the program of bench/gpu."""

import collections
import json
import os
import platform
import subprocess
import sys

from common import HERE, need

PROGRAM = HERE.parent / "target/release/thalweg-bench-gpu"
SIZES = [64, 128, 256, 512, 1024, 1518]
FUNCTIONS = ["reflect", "esp", "literals", "hop"]
# The other direction, and other forms.
OTHERS = ["esp opens", "esp_sliced", "esp_sliced opens", "literals whole"]
WAYS = ["resident", "shared 32", "copied 32", "shared 1024", "copied 1024", "scalar"]


def pocl(threads):
    """The environment in which PoCL has this many threads; other devices do not read it."""
    return {"POCL_MAX_PTHREAD_COUNT": str(threads), "POCL_WORK_GROUP_METHOD": "loops", **os.environ}


def build():
    need("rust")
    # As make does, for thalweg.
    features = "cuda" if platform.machine() == "x86_64" else ""
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", "thalweg-bench-gpu", "--features",
                    features], check=True, cwd=HERE.parent)


def measure(options, functions=FUNCTIONS, sizes=SIZES, ways=WAYS, work_groups=1, time="seconds"):
    """Seconds a packet by function, size and way: a list each, by round. With another `time`, `cpu_seconds`, those
    of processor time: of the threads that are the device, or of the syncer."""
    settings = {"device": options.device, "rounds": options.rounds, "seconds": options.seconds,
                "lanes": options.lanes, "work_groups": work_groups, "sizes": sizes, "functions": functions,
                "ways": ways, "rules": [str(rules) for rules in options.rules]}
    measured = subprocess.run([PROGRAM, json.dumps(settings)], env=pocl(work_groups), text=True,
                              stdout=subprocess.PIPE)
    if measured.returncode != 0:
        # It has said why.
        sys.exit(measured.returncode)
    times = collections.defaultdict(list)
    for line in map(json.loads, measured.stdout.splitlines()):
        times[line["function"], line["size"], line["way"]].append(line[time] / line["packets"])
    return times
