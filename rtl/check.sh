#!/usr/bin/env bash
# Lints the accelerator, runs it on the simulator's queries (cycles within 1, same order),
# and synthesises it. Needs verilator and yosys.
#
#   rtl/check.sh [THALWEG]     the program; it is built if none is named
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/rtl"
export PATH="$HOME/.cargo/bin:$PATH"

if [ $# -gt 0 ]; then thalweg=$(realpath "$1"); else
    (cd "$root" && cargo build --release --locked --quiet --package thalweg-cli)
    thalweg=${CARGO_TARGET_DIR:-$root/target}/release/thalweg
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sources=(halo_hash.sv halo_metadata.sv halo_accelerator.sv)
verilator --lint-only -Wall --top-module halo_accelerator "${sources[@]}"
verilator --cc --exe --build -O3 -Wall -CFLAGS -O2 -Mdir "$work/obj" \
    --top-module halo_accelerator "${sources[@]}" "$PWD/bench.cpp" -o bench >"$work/verilator.log" 2>&1 ||
    { cat "$work/verilator.log"; exit 1; }

run() { # METHOD SETTING...
    local settings=(--set "workload.method=$1")
    for setting in "${@:2}"; do settings+=(--set "$setting"); done
    "$thalweg" sim queries "${settings[@]}" >"$work/queries"
    echo "$*"
    "$work/obj/bench" "$work/queries"
}
run halo-blocking workload.entries=4096 workload.hit_rate=0.8
run halo-non-blocking workload.entries=4096 workload.hit_rate=0.8
run halo-non-blocking workload.hit_rate=0.5 sim.seed=2
run halo-non-blocking workload.entries=2097152 workload.occupancy=0.9 sim.seed=3

yosys -q -p "script synth.ys; tee -o $work/stat.json stat -json" >/dev/null
./area.py "$work/stat.json"
