#!/usr/bin/env bash
# Runs the edge gateway and shows its report and its alerts.
set -euo pipefail
cd "$(dirname "$0")"

thalweg=${THALWEG:-../../target/release/thalweg}
mkdir -p out

echo '== The chain'
"$thalweg" check chain.toml
echo
echo '== The run'
"$thalweg" run chain.toml
echo
echo '== The alerts'
sed -E 's/.*"src_ip":"([^"]*)".*/\1 &/; s/^([^ ]*) .*"severity":([0-9]+).*"signature":"([^"]*)".*/\1\t\2\t\3/' out/alerts.json |
    sort | uniq -c | awk -F'\t' '{split($1, a, " "); printf "%3d from %s, severity %s: %s\n", a[1], a[2], $2, $3}'
echo
echo "The output captures are examples/edge-gateway/out/lan.pcapng and wan.pcapng,"
echo "the alerts examples/edge-gateway/out/alerts.json."
