#!/usr/bin/env bash
# Measures the whole path per packet; see docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

cat >&2 <<END
bench: installs, where missing, a C compiler, Rust and Python; no peers
bench: builds target/release/thalweg
bench: runs bench/path.py${*:+ $*}: five chains, round by round
END
scripts/setup.sh bench rust python3
cargo build --release --locked --package thalweg-cli
exec bench/path.py "$@"
