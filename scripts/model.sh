#!/usr/bin/env bash
# Runs the model checker loom over the concurrent tables, the queues between a processor and a device, the
# turns of workers, the end of a generation and requests to a run: every order of the steps of their
# threads, up to a number of interruptions.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}" CARGO_TARGET_DIR=target/loom
cargo test --locked --profile release --package thalweg-classify --package thalweg-engine \
    --package thalweg-accel --lib model
