#!/usr/bin/env bash
# Runs the model checker over the concurrent tables: every order of the steps of
# writer and readers, up to a number of interruptions.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}" CARGO_TARGET_DIR=target/loom
exec cargo test --locked --profile release --package thalweg-classify --lib cuckoo::model
