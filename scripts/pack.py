#!/usr/bin/env python3
"""Packs tests and measurements of devices for a machine that has a device and no tools to build with.

    scripts/pack.py FILE.tar.xz [--only LINE ...]

LINE is as for scripts/test.py; by default, all tests of devices. FILE has their programs, thalweg,
thalweg-bench-gpu, and the libraries that they load, apart from the C library's. There, with this source tree:

    tar -xJf FILE.tar.xz -C FOLDER && FOLDER/run.sh TREE LOGS

runs the tests one after the other and measures functions on each device that runs them; what they print is in
the folder LOGS. Tests look for the tree where it was built: `run.sh` links that path to TREE if it is not there, and
puts thalweg into TREE/target/release. LIMIT is how long each may take, in seconds (120).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import test
from test import FEATURES, ROOT

DEVICES = ["accel", "ipsec device", "nids device", "router device", "cli cuda", "cli device_chains",
           "cli device_faults", "cli device_launches", "cli device_mistakes", "cli device_order", "cli devices",
           "cli devices_functions", "cli place", "cli zero_copy", "cli device_stress"]
# Those of the system that runs the programs.
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so.*)")
# Loaded by name when it is needed.
OPENCL = "libOpenCL.so.1"

RUN = r'''#!/bin/bash
# Runs the tests and measurements that lie beside it: run.sh TREE LOGS.
set -u
here=$(cd "$(dirname "$0")" && pwd) tree=$(cd "$1" && pwd) limit=${LIMIT:-120} failed=0
mkdir -p "$2" && logs=$(cd "$2" && pwd)
export LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-}
if [ -z "${NVRTC_DYLIB_PATH:-}" ]; then
    for library in /usr/local/cuda*/lib64/libnvrtc.so.1?; do
        [ -e "$library" ] && export NVRTC_DYLIB_PATH=$library
    done
fi
[ -e '{root}' ] || { mkdir -p "$(dirname '{root}')" && ln -s "$tree" '{root}'; }
mkdir -p "$tree/target/release" && cp "$here/thalweg" "$tree/target/release/"
"$here/thalweg" devices | tee "$logs/devices"
while read -r name program folder; do
    cd "$tree/$folder" || exit 1
    began=$SECONDS
    timeout -k 5 "$limit" "$here/tests/$program" --show-output < /dev/null > "$logs/$name" 2>&1
    code=$?
    [ $code = 0 ] || failed=$((failed + 1))
    echo "$name: exit $code, $((SECONDS - began)) s, $(grep '^test result' "$logs/$name")"
    grep -E '^SKIPPED|panicked at' "$logs/$name" | sort -u
done < "$here/programs"
for device in $(awk '/resident kernels|batches/ && $1 ~ /^(soft|opencl:|cuda:)/ {print $1}' "$logs/devices"); do
    for ways in '"resident", "scalar"' '"copied 32", "copied 1024"'; do
        timeout -k 5 "$limit" "$here/thalweg-bench-gpu" "{\"device\": \"$device\", \"rounds\": 1, \"seconds\": 0.2,
            \"lanes\": 32, \"work_groups\": 1, \"sizes\": [64, 1518],
            \"functions\": [\"reflect\", \"esp\", \"literals\", \"hop\"], \"ways\": [$ways]}"
    done
done 2>&1 | tee "$logs/functions"
echo "$failed programs failed"
[ $failed = 0 ]
'''


def libraries(program):
    """The files of the libraries that a program loads at its start, by name."""
    listed = subprocess.run(["ldd", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: path for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M)
            if not OF_THE_SYSTEM.fullmatch(name)}


def stripped(program, into):
    shutil.copy(program, into)
    subprocess.run(["strip", into], check=True)


def release(package, features):
    """Builds a program as it is released."""
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", package, "--features", features],
                   cwd=ROOT, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", action="append", metavar="LINE", default=[])
    options = parser.parse_args()
    with test.release_program_kept():
        programs = test.select(test.build(), options.only or DEVICES)
    release("thalweg-cli", FEATURES)
    release("thalweg-bench-gpu", "cuda" if "cuda" in FEATURES.split(",") else "")
    with tempfile.TemporaryDirectory() as folder:
        folder, lines, found = Path(folder), [], {}
        for name in ["tests", "lib"]:
            (folder / name).mkdir()
        for crate, target, program, directory, _ in programs:
            stripped(program, folder / "tests" / Path(program).name)
            found |= libraries(program)
            lines.append(f"{crate}-{target} {Path(program).name} {directory.relative_to(ROOT)}\n")
        for name in ["thalweg", "thalweg-bench-gpu"]:
            program = ROOT / "target/release" / name
            stripped(program, folder / name)
            found |= libraries(program)
        cache = subprocess.run(["/sbin/ldconfig", "-p"], check=True, stdout=subprocess.PIPE, text=True).stdout
        found |= dict(re.findall(rf"^\s*({re.escape(OPENCL)}) .*x86-64.* => (\S+)", cache, re.M))
        for name, path in found.items():
            shutil.copy(os.path.realpath(path), folder / "lib" / name)
        (folder / "programs").write_text("".join(lines))
        script = folder / "run.sh"
        script.write_text(RUN.replace("{root}", str(ROOT)))
        script.chmod(0o755)
        with tarfile.open(options.file, "w:xz") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name)
    print(f"{options.file}: {len(programs)} programs with tests, {options.file.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    sys.exit(main())
