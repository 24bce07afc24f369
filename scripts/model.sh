#!/usr/bin/env bash
# Runs model checkers. Loom runs the concurrent tables, the queues between a processor and a device, the
# turns of workers, the end of a generation and requests to a run: every order of the steps of their
# threads, up to a number of interruptions. Stateright runs a model of those queues, with both sides, any
# number of interruptions, and larger shapes than in the other tests.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --locked --profile bench --package thalweg-accel --test protocol -- --include-ignored

export RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}" CARGO_TARGET_DIR=target/loom
cargo test --locked --profile release --package thalweg-classify --package thalweg-engine \
    --package thalweg-accel --lib model
