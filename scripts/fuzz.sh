#!/usr/bin/env bash
# Runs each fuzz target for FUZZ_SECONDS seconds; any finding fails.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
# The sanitizer flags of cargo-fuzz are not stable yet; the stable compiler takes
# them with this, so that no second toolchain is needed.
export RUSTC_BOOTSTRAP=1

targets=$(cargo fuzz list)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

cargo fuzz build
for target in $targets; do
    mkdir -p "fuzz/corpus/$target"
    folders=("fuzz/corpus/$target")
    [ -d "fuzz/seeds/$target" ] && folders+=("fuzz/seeds/$target")
    if ! cargo fuzz run "$target" "${folders[@]}" -- -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz: $target found something, see fuzz/artifacts/$target" >&2
        exit 1
    fi
    runs=$(awk '/stat::number_of_executed_units/ {print $2}' "$log")
    echo "fuzz: $target: $runs inputs in $seconds s, no finding"
done
