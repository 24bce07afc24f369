#!/usr/bin/env bash
# What takes minutes and more, beyond .ci/run; each step runs alone too:
#
#   scripts/long.sh            all steps
#   scripts/long.sh STEP...    these: tests, fuzz, api, soak, bursts, stress, model, figures, example
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH" REQUIRE_PEERS=1

# Tests that CI leaves out, and ten times as many random cases; and the simulator's with full
# optimisation, since its results must not depend on it.
tests() {
    PROPTEST_CASES=2560 scripts/test.py --ignored
    cargo test --release --locked --package thalweg-sim
}
fuzz() { FUZZ_SECONDS=${FUZZ_SECONDS:-600} scripts/fuzz.sh; }
# Requests of all kinds to the API of a run.
api() { SCHEMATHESIS_SECONDS=${SCHEMATHESIS_SECONDS:-60} scripts/test.py --only "control peer_document"; }
# Every kind of NF at once under hostile traffic, with a look for leaks.
soak() { bench/soak.py --minutes "${SOAK_MINUTES:-10}" --leaks; }
# Ten minutes each of bursts and pauses between live interfaces: nothing lost without a count or reordered.
bursts() {
    DISTURBED_SECONDS=${DISTURBED_SECONDS:-600} LABORATORY_SECONDS=$((${DISTURBED_SECONDS:-600} + 60)) \
        scripts/test.py --only "cli live_links bursts" --only "cli tap bursts"
}
# Half an hour of random chains with NFs on devices, with bursts, reloads, stops and kills: nothing lost,
# repeated, reordered or stuck.
stress() {
    STRESS_SECONDS=${STRESS_SECONDS:-1800} scripts/test.py --only "cli device_stress"
}
# The model checker with one interruption more than in CI.
model() { LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-4} scripts/model.sh; }
# The figures of docs/gpu-figures.md, in one short round on threads: that they are drawn, not what they show.
figures() {
    cargo build --release --locked --package thalweg-cli --features "$(scripts/setup.sh features)"
    bench/gpu.py figures --device soft --quick --out out/figures
    local figure
    for figure in figure-{3..8} overhead; do
        grep -q '</svg>' "out/figures/$figure.svg"
        [ "$(wc -l <"out/figures/$figure.csv")" -gt 2 ]
    done
}
# The example of a user's own NF, outside of this workspace.
example() { examples/own-nf/standalone.sh; }

steps=("$@")
[ ${#steps[@]} -ne 0 ] || steps=(tests fuzz api soak bursts stress model figures example)
for step in "${steps[@]}"; do
    case $step in tests | fuzz | api | soak | bursts | stress | model | figures | example) ;; *)
        echo "long: unknown step '$step'; expected tests, fuzz, api, soak, bursts, stress, model, figures or example" >&2
        exit 2
        ;;
    esac
done
scripts/setup.sh ci
for step in "${steps[@]}"; do
    echo "== $step"
    began=$SECONDS
    "$step"
    echo "== $step: $((SECONDS - began)) s"
done
