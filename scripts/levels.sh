#!/usr/bin/env bash
# Runs the tests of the data path at each level of vector instructions: on this processor those
# that it has, on an emulated one (scripts/emulate.sh) those that it lacks, or has in part.
#
#   scripts/levels.sh             runs them
#   scripts/levels.sh missing     names the levels that are emulated
set -euo pipefail
cd "$(dirname "$0")/.."

has() {
    local flag
    for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo || return 1; done
}

# What a level is, as in crates/packet/src/isa.rs, and what some of its variants use besides.
avx2="avx2 bmi1 bmi2 popcnt sse4_2"
avx512="$avx2 avx512f avx512bw avx512dq avx512vl avx512cd"
besides="aes vaes avx512vbmi gfni"

native=(scalar)
emulated=()
# shellcheck disable=SC2086  # lists of words
if [ "$(uname -m)" = x86_64 ]; then
    if has $avx2; then native+=(avx2); else emulated+=(avx2); fi
    if has $avx512; then native+=(avx512); fi
    has $avx512 $besides || emulated+=(avx512)
fi
if [ "${1:-}" = missing ]; then
    echo "${emulated[*]}"
    exit
fi

tests() {
    echo "== $1"
    export THALWEG_ISA=$1 REQUIRE_ISA=$1
    cargo test --locked --quiet --lib --tests \
        --package thalweg-packet --package thalweg-classify --package thalweg-chain
    cargo test --locked --quiet --package thalweg-nf \
        --features ipsec-mb --lib -- ipsec router:: literals
}

for isa in "${native[@]}"; do tests "$isa"; done
if [ ${#emulated[@]} -ne 0 ]; then
    scripts/emulate.sh start
    # Cargo gives each program with tests to this instead of running it.
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/scripts/emulate.sh put"
    for isa in "${emulated[@]}"; do tests "$isa"; done
    scripts/emulate.sh run
fi
