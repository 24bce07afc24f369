#!/usr/bin/env bash
# What the compiler does not say: format, clippy, documentation, licences.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked --features ipsec-mb,ndpi -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
# Also what only other platforms need: cargo deny looks at all of it.
cargo fetch --locked
cargo deny --offline check licenses bans sources
echo 'lint: clean'
