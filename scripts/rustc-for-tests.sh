#!/usr/bin/env bash
# Compiles tests without optimisation, which takes a quarter of the time, and all else as it is: cargo
# has no setting for the tests of a crate alone. Those of these crates compute for long, or on an
# emulated processor. (Not for sh: dash drops variables such as CARGO_BIN_EXE_own-nf.)
case "$CARGO_PKG_NAME" in
    thalweg-accel | thalweg-classify | thalweg-cpu | thalweg-ipsec | thalweg-packet | thalweg-router | thalweg-sim)
        exec "$@"
        ;;
esac
case " $* " in
    *" --test "*) exec "$@" -C opt-level=0 ;;
esac
exec "$@"
