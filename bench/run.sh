#!/usr/bin/env bash
# Measures the whole path per packet; see docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --package thalweg-cli
exec bench/path.py "$@"
