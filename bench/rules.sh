#!/usr/bin/env bash
# Measures the rule table; see docs/classification/rules.md.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo run --release --locked --quiet --package thalweg-bench-rules -- "$@"
