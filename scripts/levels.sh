#!/usr/bin/env bash
# Runs the tests of the data path at each level of vector instructions: on this processor at those
# that it has; on an emulated one (scripts/emulate.sh), some hundred times slower, at those that it
# lacks, or has in part, only the tests of scripts/levels.txt.
#
#   scripts/levels.sh             runs them
#   scripts/levels.sh missing     names the levels that are emulated
set -euo pipefail
cd "$(dirname "$0")/.."

has() {
    local flag
    for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo || return 1; done
}

# The levels, as in crates/cpu/src/isa.rs, and instructions that only some of their variants use.
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
# For a try of the emulation where nothing needs it.
[ -z "${EMULATE:-}" ] || read -ra emulated <<<"$EMULATE"
if [ "${1:-}" = missing ]; then
    echo "${emulated[*]}"
    exit
fi

for isa in "${native[@]}"; do
    echo "== $isa"
    THALWEG_ISA=$isa REQUIRE_ISA=$isa scripts/test.py --only cpu --only packet --only classify \
        --only chain --only 'ipsec lib' --only 'router lib' --only 'nids lib literals::'
done
if [ ${#emulated[@]} -ne 0 ]; then
    only=()
    while read -r line; do
        [[ $line = '' || $line = '#'* ]] || only+=(--only "$line")
    done <scripts/levels.txt
    scripts/emulate.sh start
    programs=$(scripts/test.py --programs "${only[@]}")
    for isa in "${emulated[@]}"; do
        export THALWEG_ISA=$isa
        # shellcheck disable=SC2086  # a program and its arguments
        while read -r program; do scripts/emulate.sh put $program; done <<<"$programs"
    done
    scripts/emulate.sh run
fi
