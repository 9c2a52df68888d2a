#!/usr/bin/env bash
# Builds what other languages have the databases by: a wheel for Python, a package for npm, and a library for Erlang and Elixir.
#
#   scripts/bindings.sh [FOLDER]   into FOLDER, or $CARGO_TARGET_DIR/bindings
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

out=${1:-$CARGO_TARGET_DIR/bindings}
maturin="$SETTEE_CACHE/maturin/bin/maturin"
[ -x "$maturin" ] || { echo "bindings: no $maturin; scripts/setup.sh test installs it" >&2; exit 1; }
mkdir -p "$out"
rm -f "$out"/settee-*.whl "$out"/settee-*.tgz "$out"/settee-*.tar.gz

# What maturin has cargo compile is all packages; they are linked with the RocksDB of this machine, as the program is.
CARGO="$PWD/scripts/bindings-cargo.sh" \
  "$maturin" build --quiet --release --locked --manifest-path bindings/python/Cargo.toml --out "$out"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r bindings/node/package.json bindings/node/README.md bindings/node/index.js bindings/node/index.d.ts bindings/node/lib "$stage"
cp "$CARGO_TARGET_DIR/release/libsettee_node.so" "$stage/settee.node"
(cd "$stage" && npm pack --silent --pack-destination "$out" >/dev/null)

# An OTP library with object code, which plain Erlang loads, and sources, which mix compiles. Elixir reads them as UTF-8.
export LC_ALL=C.UTF-8
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
library="$stage/settee-$version"
mkdir -p "$library"/{ebin,lib,priv,src}
cp -r bindings/erlang/README.md bindings/erlang/examples LICENSE "$library"
cp bindings/erlang/erlang/*.erl bindings/erlang/erlang/settee.app.src "$library/src"
cp bindings/erlang/elixir/*.ex "$library/lib"
cp "$CARGO_TARGET_DIR/release/libsettee_nif.so" "$library/priv/settee_nif.so"
sed -i "s/@VERSION@/$version/" "$library/src/settee.app.src"
sed "s/@VERSION@/$version/" bindings/erlang/mix.exs >"$library/mix.exs"
cp "$library/src/settee.app.src" "$library/ebin/settee.app"
erlc -Werror +debug_info -o "$library/ebin" "$library"/src/*.erl
ERL_LIBS="$stage" elixirc --warnings-as-errors -o "$library/ebin" "$library"/lib/*.ex >/dev/null
tar -C "$stage" -czf "$out/settee-$version-erlang.tar.gz" "settee-$version"
ls -1 "$out"/settee-*.whl "$out"/settee-*.tgz "$out"/settee-*.tar.gz
