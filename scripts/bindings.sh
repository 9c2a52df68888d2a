#!/usr/bin/env bash
# Builds what other languages have the databases by: a wheel for Python and a package for npm.
#
#   scripts/bindings.sh [FOLDER]   into FOLDER, or $CARGO_TARGET_DIR/bindings
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

out=${1:-$CARGO_TARGET_DIR/bindings}
maturin="$SETTEE_CACHE/maturin/bin/maturin"
[ -x "$maturin" ] || { echo "bindings: no $maturin; scripts/setup.sh test installs it" >&2; exit 1; }
mkdir -p "$out"
rm -f "$out"/settee-*.whl "$out"/settee-*.tgz

# What maturin has cargo compile is both packages; they are linked with the RocksDB of this machine, as the program is.
CARGO="$PWD/scripts/bindings-cargo.sh" \
  "$maturin" build --quiet --release --locked --manifest-path bindings/python/Cargo.toml --out "$out"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r bindings/node/package.json bindings/node/README.md bindings/node/index.js bindings/node/index.d.ts bindings/node/lib "$stage"
cp "$CARGO_TARGET_DIR/release/libsettee_node.so" "$stage/settee.node"
(cd "$stage" && npm pack --silent --pack-destination "$out" >/dev/null)
ls -1 "$out"/settee-*.whl "$out"/settee-*.tgz
