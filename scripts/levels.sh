#!/usr/bin/env bash
# Runs the tests of the data path at each level of vector instructions that this machine has, and
# names those that it lacks. A level that is in LEVELS has to be there: else it would not be tested
# at all.
#
#   LEVELS="scalar avx2 avx512" scripts/levels.sh
set -euo pipefail
cd "$(dirname "$0")/.."

has() {
    local flag
    for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo || return 1; done
}

levels=(scalar)
has avx2 bmi1 bmi2 popcnt sse4_2 && levels+=(avx2)
has avx2 avx512f avx512bw avx512dq avx512vl avx512cd && levels+=(avx512)
missing=()
for isa in scalar avx2 avx512; do
    [[ " ${levels[*]} " == *" $isa "* ]] || missing+=("$isa")
done
for isa in ${LEVELS:-${levels[*]}}; do
    echo "== $isa"
    THALWEG_ISA=$isa REQUIRE_ISA=$isa cargo test --locked --quiet \
        --package thalweg-packet --package thalweg-classify --package thalweg-chain
    THALWEG_ISA=$isa REQUIRE_ISA=$isa cargo test --locked --quiet --package thalweg-nf \
        --features ipsec-mb --lib -- ipsec router:: literals
done
if ((${#missing[@]})); then
    echo "levels: this processor has no ${missing[*]}, whose variants are NOT TESTED here" >&2
fi
