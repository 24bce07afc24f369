#!/usr/bin/env bash
# Checks that the compiler does not make: phrases, format, clippy, documentation, licences.
set -euo pipefail
cd "$(dirname "$0")/.."

# Fast, so first: the words of messages, help and documentation (docs/style.md).
scripts/words.py --self-test
scripts/words.py
# The fuzz targets are a workspace of their own, with a lock file that a new dependency leaves behind.
cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
cargo fmt --all --check
# The profile of the tests, since it shares procedural macros with them and with the program.
profile=(--profile bench --workspace --locked --features ipsec-mb,libpcap,ndpi,dpdk,cuda)
cargo clippy "${profile[@]}" --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc "${profile[@]}" --no-deps
# Fetch the dependencies of other platforms too: cargo deny examines all of them.
cargo fetch --locked
PATH="$HOME/.cache/thalweg/tools/bin:$PATH" cargo deny --offline check licenses bans sources
echo 'lint: clean'
