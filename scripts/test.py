#!/usr/bin/env python3
"""Builds all tests once, and runs their programs side by side, the longest first.

    scripts/test.py                           every test, and those in the documentation
    scripts/test.py --only LINE [--only ...]  of these lines only: CRATE [TARGET [PATTERN...]]
    scripts/test.py --only LINE --programs    prints the programs and arguments instead
    scripts/test.py --ignored                 also tests that are ignored because they take long

CRATE is a crate's name without 'thalweg-', TARGET 'lib', 'main' or the name of an integration
test, PATTERN a part of a test's name. Everything is built whatever is run, since cargo builds
dependencies anew when the set of crates changes. `cargo test` runs the same tests one program after
the other.

Environment: FEATURES (else those that this system can have), JOBS (programs at a time), and what the tests read
(REQUIRE_PEERS, THALWEG_ISA, PROPTEST_CASES, NVRTC_DYLIB_PATH).
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# How long each program took the last time, so that the longest begin first; of these, roughly, where
# there was no last time.
TIMES = ROOT / "target" / "test-times.json"
SLOW = {"sim lib": 22, "cli live": 15, "cli terminal": 15, "sim reference": 12, "cli levels": 10,
        "nids lib": 10, "accel protocol": 10, "ipsec lib": 9, "classify classbench_masks": 9, "router router_table": 9,
        "cli device_stress": 9, "control peer_document": 9, "cli captures": 9, "cli schemas": 8, "cli top": 8,
        "cli memory": 8, "control watching": 8, "engine lib": 8, "l7fw lib": 8, "classify masks": 8, "assets lib": 7,
        "cli peer_prometheus": 7, "cli overload": 6, "control unharmed": 6, "cli pipes": 5,
        "cli service": 5, "nat lib": 5}
FEATURES = os.environ.get("FEATURES")
if FEATURES is None:
    FEATURES = subprocess.check_output([ROOT / "scripts" / "setup.sh", "features"], text=True).strip()
CARGO = ["cargo", "test", "--locked", "--profile", "bench", "--features", FEATURES]
# Tests themselves are built without optimisation; what they test is built as ever.
# CUDA's compiler from PyPI, which no search for libraries finds.
NVRTC = sorted((Path.home() / ".cache/thalweg/tools/lib").glob(
    "python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*"))
if NVRTC:
    os.environ.setdefault("NVRTC_DYLIB_PATH", str(NVRTC[0]))
BUILD = {**os.environ, "RUSTC_WORKSPACE_WRAPPER": str(ROOT / "scripts" / "rustc-for-tests.sh")}
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


@contextlib.contextmanager
def release_program_kept():
    """Puts the program of the release build back, whose place that of the tests takes: cargo keeps
    both profiles in one folder, and the tests' one has assertions and is slow."""
    program = ROOT / "target" / "release" / "thalweg"
    kept = program.with_name("thalweg.kept")
    if program.exists():
        kept.unlink(missing_ok=True)
        os.link(program, kept)
    try:
        yield
    finally:
        if kept.exists():
            kept.replace(program)


def build():
    """The programs with tests: (crate, target, program, folder of the crate)."""
    command = [*CARGO, "--no-run", "--message-format", "json-render-diagnostics"]
    output = subprocess.run(command, cwd=ROOT, env=BUILD, stdout=subprocess.PIPE, text=True)
    if output.returncode != 0:
        sys.exit(output.returncode)
    programs = []
    for message in map(json.loads, output.stdout.splitlines()):
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            manifest, target = Path(message["manifest_path"]), message["target"]
            kind = {"lib": "lib", "bin": "main"}.get(target["kind"][0], target["name"])
            programs.append((manifest.parent.name, kind, message["executable"], manifest.parent))
    return programs


def select(programs, lines):
    """The programs that `lines` name, each with its arguments."""
    if not lines:
        return [(*program, []) for program in programs]
    selected = []
    for line in lines:
        crate, *rest = line.split()
        found = [p for p in programs if p[0] == crate and rest[:1] in ([], [p[1]])]
        if not found:
            sys.exit(f"test: no tests at '{line}'")
        selected += [(*program, rest[1:]) for program in found]
    return selected


def run(entry):
    """Runs one program; its name, exit code, output and seconds."""
    crate, target, program, folder, arguments = entry
    # As cargo's own runner sets them.
    package = crate if (ROOT / "examples" / crate).exists() else f"thalweg-{crate}"
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(folder), "CARGO_PKG_NAME": package}
    began = time.monotonic()
    # Shows what a test prints when it skips a part of itself.
    done = subprocess.run([program, "--show-output", *arguments], cwd=folder, env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    return f"{crate} {target}", done.returncode, done.stdout, time.monotonic() - began


def run_documentation():
    """Runs the tests in the documentation, as `run` does."""
    began = time.monotonic()
    done = subprocess.run([*CARGO, "--doc", "--quiet"], cwd=ROOT, env=BUILD, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return "documentation", done.returncode, done.stdout, time.monotonic() - began


def run_all(entries, documentation):
    """Runs the programs, and the tests in the documentation if they are wanted; how many tests passed,
    failed and were ignored, what was skipped, and the times."""
    times = json.loads(TIMES.read_text()) if TIMES.exists() else dict(SLOW)
    size = lambda entry: os.path.getsize(entry[2]) / 1e9
    entries.sort(key=lambda entry: -times.get(f"{entry[0]} {entry[1]}", size(entry)))
    totals, skipped = [0, 0, 0], set()
    # Tests wait for peers, too: two more than there are processors.
    jobs = int(os.environ.get("JOBS", (os.cpu_count() or 1) + 2))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        # They use one processor for seconds: among the first.
        running = [pool.submit(run_documentation)] if documentation else []
        running += [pool.submit(run, entry) for entry in entries]
        for done in concurrent.futures.as_completed(running):
            name, code, output, seconds = done.result()
            counts = [sum(map(int, column)) for column in zip(*RESULT.findall(output))] or [0, 0, 0]
            # A program that dies reports no result.
            counts[1] = max(counts[1], int(code != 0))
            totals = [a + b for a, b in zip(totals, counts)]
            skipped.update(re.findall(r"^SKIPPED: .*", output, re.M))
            times[name] = round(seconds, 2)
            if code != 0:
                print(output)
            if sum(counts):
                verdict = "ok" if code == 0 else "FAILED"
                print(f"{verdict:6} {seconds:6.1f} s {counts[0]:4} tests  {name}", flush=True)
    return totals, skipped, times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="LINE")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--ignored", action="store_true")
    options = parser.parse_args()
    entries = select(build(), options.only)
    if options.ignored:
        entries = [(*entry[:4], [*entry[4], "--include-ignored"]) for entry in entries]
    if options.programs:
        for _, _, program, _, arguments in entries:
            print(program, *arguments)
        return
    (passed, failed, ignored), skipped, times = run_all(entries, not options.only)
    if not options.only:
        TIMES.write_text(json.dumps(times, indent=1, sort_keys=True))
    for line in sorted(skipped):
        print(line)
    print(f"{passed} passed, {failed} failed, {ignored} skipped")
    sys.exit(failed != 0)


if __name__ == "__main__":
    with release_program_kept():
        main()
