#!/usr/bin/env bash
# Runs each fuzz target for FUZZ_SECONDS seconds, from its seeds and from the inputs that earlier
# runs found; any finding fails. Arguments name the targets; without any, all run.
set -euo pipefail
cd "$(dirname "$0")/.."

export seconds=${FUZZ_SECONDS:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
export programs=${CARGO_TARGET_DIR:-fuzz/target}/$host/release
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_odr_violation=0

# cargo-fuzz 0.13 passes the same flags, so both tools share one build. Plain cargo needs no tool
# that must be built first. The stable compiler takes sanitizer flags only with RUSTC_BOOTSTRAP.
build() {
    local coverage=(level=4 inline-8bit-counters pc-table trace-compares)
    local flags="-Cpasses=sancov-module ${coverage[*]/#/-Cllvm-args=-sanitizer-coverage-}"
    flags+=" --cfg fuzzing -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Zsanitizer=address"
    flags+=" -Cllvm-args=-sanitizer-coverage-stack-depth -Cdebug-assertions -Ccodegen-units=1"
    # The leading space is cargo-fuzz's.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS=" $flags" cargo build --manifest-path fuzz/Cargo.toml --locked \
        --release --bins --target "$host"
}

# Runs one target; prints a line, or the end of the log and the path of the input found.
try() {
    local target=$1 log=$work/$1.log begin=$SECONDS
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target" "$work/$target"
    if ! TMPDIR=$work/$target "$programs/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" \
        -artifact_prefix="fuzz/artifacts/$target/" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1; then
        local found
        found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        printf '%s\nfuzz: %s found something: %s\n' "$(tail -n 60 "$log")" "$target" \
            "${found:-no input was written}" >&2
        return 1
    fi
    local inputs coverage
    inputs=$(awk '/stat::number_of_executed_units/ {print $2}' "$log")
    coverage=$(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log")
    echo "fuzz: $target: $inputs inputs, coverage $coverage, $((SECONDS - begin)) s"
}
export -f try

if [ $# -eq 0 ]; then
    set -- fuzz/fuzz_targets/*.rs
    set -- "${@##*/}"
    set -- "${@%.rs}"
fi

# The targets write many small files: into memory, where there is such a folder.
[ -w /dev/shm ] && memory=/dev/shm
work=$(mktemp -d -p "${memory:-${TMPDIR:-/tmp}}" fuzz.XXXXXX)
export work
trap 'rm -rf "$work"' EXIT

build
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" bash -c 'try "$@"' fuzz
