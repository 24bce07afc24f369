#!/usr/bin/env python3
"""Does this kernel leave threads that could run without a processor, while several sessions compute?

    bench/starvation.py [--seconds 40] [--sessions 3] [--sleepers 6]

Each session (setsid) has a process that computes, and SLEEPERS that yield once, sleep for a millisecond, and so on.
Twice a second it looks at all threads of the machine, and prints for how long one was runnable and did not run:
the longest time, and what threads waited for more than two seconds. It does so with and without autogroups
(kernel.sched_autogroup_enabled), which only root can switch; afterwards they are as before.

With a fair scheduler a thread waits for a few dozen milliseconds.
"""

import argparse
import os
import platform
import signal
import time
from pathlib import Path

from common import cpu_model

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
LOOK = 0.5
LONG = 2.0


def compute():
    while True:
        pass


def yield_and_sleep():
    while True:
        os.sched_yield()
        time.sleep(0.001)


def session(sleepers):
    """Starts a session with its processes; returns the number of the process that leads it."""
    leader = os.fork()
    if leader:
        return leader
    os.setsid()
    for _ in range(sleepers):
        if os.fork() == 0:
            yield_and_sleep()
    compute()


def runnable():
    """The nanoseconds for which each runnable thread has run, by its folder, with its name."""
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            for thread in os.listdir(f"/proc/{process}/task"):
                place = f"/proc/{process}/task/{thread}"
                before, after = Path(place, "stat").read_text().rsplit(") ", 1)
                if after[0] == "R":
                    ran = int(Path(place, "schedstat").read_text().split()[0])
                    found[place] = (ran, before.split("(", 1)[1])
        except OSError:
            pass  # it has ended
    return found


def longest_wait(seconds):
    """The longest time for which a thread could run and did not, and the names of those that waited long."""
    longest, waited, since = 0.0, set(), {}
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        seen = {}
        for place, (ran, name) in runnable().items():
            ran_then, first = since.get(place, (None, now))
            seen[place] = (ran, first if ran_then == ran else now)
            longest = max(longest, now - seen[place][1])
            if now - seen[place][1] > LONG:
                waited.add(name)
        since = seen
        time.sleep(LOOK)
    return longest, waited


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--sleepers", type=int, default=6)
    options = parser.parse_args()
    print(f"{cpu_model()}, {os.cpu_count()} processors, Linux {platform.release()}")
    before = AUTOGROUP.read_text().strip() if AUTOGROUP.exists() else None
    settings = ["1", "0"] if before and os.access(AUTOGROUP, os.W_OK) else [before]
    for setting in settings:
        if len(settings) > 1:
            AUTOGROUP.write_text(setting)
        leaders = [session(options.sleepers) for _ in range(options.sessions)]
        try:
            longest, waited = longest_wait(options.seconds)
        finally:
            for leader in leaders:
                os.killpg(leader, signal.SIGKILL)
                os.waitpid(leader, 0)
            if len(settings) > 1:
                AUTOGROUP.write_text(before)
        groups = {"1": "with autogroups", "0": "without autogroups"}.get(setting, "no autogroups in this kernel")
        print(f"{groups}: {longest:.1f} s; for more than {LONG:.0f} s: {', '.join(sorted(waited)) or 'none'}", flush=True)


if __name__ == "__main__":
    main()
