#!/usr/bin/env bash
# Measures the rule table; see docs/classification/rules.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
scripts/setup.sh bench rust
exec cargo run --release --locked --quiet --package thalweg-bench-rules -- "$@"
