#!/usr/bin/env bash
# Compiles RocksDB as a static library, once per machine and version of librocksdb-sys, and makes the
# checkout's `.rocksdb` a link to it. `.cargo/config.toml` tells cargo to link that library, so neither
# another profile, nor other features, nor another checkout compiles it again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

version=$(awk '$1 == "name" && $3 == "\"librocksdb-sys\"" { getline; gsub(/"/, "", $3); print $3; exit }' Cargo.lock)
[ -n "$version" ] || { echo "rocksdb: no librocksdb-sys in Cargo.lock" >&2; exit 1; }
home="$SETTEE_CACHE/rocksdb/$version"

compile() {
  local work="$home/build"
  mkdir -p "$work/src"
  cat > "$work/Cargo.toml" <<TOML
[package]
name = "rocksdb-build"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
librocksdb-sys = { version = "=$version", default-features = false, features = ["lz4", "zstd", "bindgen-runtime"] }
TOML
  echo > "$work/src/lib.rs"
  echo "rocksdb: compiling version $version, once for this machine (about 15 minutes of two cores)" >&2
  (cd "$work" && ROCKSDB_COMPILE=1 CARGO_TARGET_DIR="$work/target" cargo build --release --quiet)
  # Renamed last, so that an interrupted run leaves nothing that looks finished.
  cp "$work"/target/release/build/librocksdb-sys-*/out/librocksdb.a "$home/librocksdb.a.new"
  mv "$home/librocksdb.a.new" "$home/librocksdb.a"
  rm -rf "$work"
}

if [ ! -e "$home/librocksdb.a" ]; then
  mkdir -p "$home"
  exec 9> "$home/lock"
  flock 9
  [ -e "$home/librocksdb.a" ] || compile
fi
[ "$(readlink .rocksdb 2>/dev/null)" = "$home" ] || ln -sfn "$home" .rocksdb
