#!/usr/bin/env bash
# Builds and runs a copy of this folder outside the repository, as a workspace of its own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$here/." "$root/Cargo.lock" "$copy"
sed -i "s|\"\.\./\.\./crates/|\"$root/crates/|" "$copy/Cargo.toml"

# The dependencies stay built from one call to the next.
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/own-nf
export CARGO_TARGET_DIR
cd "$copy"
# Offline: the lock file names the versions that the repository was built with.
cargo run --offline -- run chain.toml
