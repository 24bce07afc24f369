#!/usr/bin/env bash
# Runs the model checker over the concurrent tables, the queues between a processor and a device, and
# over the turns of workers, the end of a generation and requests to a run: every order of the steps of their threads, up to a number of
# interruptions.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}" CARGO_TARGET_DIR=target/loom
cargo test --locked --profile release --package thalweg-classify --lib cuckoo::model
cargo test --locked --profile release --package thalweg-engine --lib model
cargo test --locked --profile release --package thalweg-accel --lib model
