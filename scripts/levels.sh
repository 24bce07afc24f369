#!/usr/bin/env bash
# Runs the tests of the data path at each level of vector instructions. A level
# that this machine lacks is a failure: then it would not be tested at all.
set -euo pipefail
cd "$(dirname "$0")/.."

for isa in scalar avx2 avx512; do
    echo "== $isa"
    THALWEG_ISA=$isa REQUIRE_ISA=$isa cargo test --locked --quiet \
        --package thalweg-packet --package thalweg-classify --package thalweg-chain
    THALWEG_ISA=$isa REQUIRE_ISA=$isa cargo test --locked --quiet --package thalweg-nf \
        --features ipsec-mb --lib -- ipsec router::
done
