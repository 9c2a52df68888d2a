#!/usr/bin/env bash
# Compiles RocksDB as a static library, once per machine and version of librocksdb-sys, and makes the
# checkout's `.rocksdb` a link to it. `.cargo/config.toml` tells cargo to link that library, so neither
# another profile, nor other features, nor another checkout compiles it again.
#
# The sources are those that the crate brings, with the defines of its build script for Linux with the
# features lz4 and zstd. They are compiled in chunks that include up to 16 of them each: most of the time
# of RocksDB's 343 files goes into reading the same headers, so this takes 4 minutes of two cores
# instead of 15 to 20. For another architecture (CARGO_BUILD_TARGET, `make dist ARCH=arm64`) it is another library, which the caller
# passes to cargo as ROCKSDB_LIB_DIR: its folder is printed. Frame pointers are kept for profiles. `crates/storage/native` has files of ours that are compiled with them, and patches of
# theirs, each of a file that its first line names. Names of files in the library are the same on every machine, for packaging/build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
. scripts/target.sh

version=$(awk '$1 == "name" && $3 == "\"librocksdb-sys\"" { getline; gsub(/"/, "", $3); print $3; exit }' Cargo.lock)
[ -n "$version" ] || { echo "rocksdb: no librocksdb-sys in Cargo.lock" >&2; exit 1; }
# Counts up when the way of compiling changes, so that an older library is not taken for this one.
recipe=8
# What `crates/storage/native` holds, and what it held when that recipe began: with other files it is another library.
native=$(cd crates/storage/native && LC_ALL=C && sha256sum -- * | sha256sum | cut -c 1-12)
native_of_recipe=7eee88997e82
home="$SETTEE_CACHE/rocksdb/$version-$recipe"
[ "$native" = "$native_of_recipe" ] || home="$home-$native"
[ -z "$tools" ] || home="$home-$machine"
files_per_chunk=16

# The folder of a crate's sources: source_of NAME
source_of() {
  cargo metadata --locked --format-version 1 \
    | tr ',' '\n' | sed -n 's/^"manifest_path":"\(.*\/'"$1"'-[0-9][^/]*\)\/Cargo.toml".*/\1/p' | head -n 1
}

compile() {
  local work="$home/build" rocksdb zstd lz4
  cargo fetch --locked --quiet
  rocksdb=$(source_of librocksdb-sys) zstd=$(source_of zstd-sys) lz4=$(source_of lz4-sys)
  [ -d "$rocksdb/rocksdb" ] && [ -d "$zstd/zstd/lib" ] && [ -d "$lz4/liblz4/lib" ] \
    || { echo "rocksdb: the sources are not where they are looked for: $rocksdb $zstd $lz4" >&2; exit 1; }
  rm -rf "$work"
  mkdir -p "$work"
  echo "rocksdb: compiling version $version${tools:+ for $machine}, once for this machine (about 4 minutes of two cores)" >&2

  # Patched copies come first in the search path.
  local sources=0 file patch
  for patch in crates/storage/native/*.patch; do
    file=$(sed -n '1s|^--- a/||p' "$patch")
    mkdir -p "$work/patched/rocksdb/$(dirname "$file")"
    patch --quiet --fuzz=0 --output="$work/patched/rocksdb/$file" "$rocksdb/rocksdb/$file" "$patch" \
      || { echo "rocksdb: $patch does not apply to this version" >&2; exit 1; }
  done
  while read -r file; do
    case "$file" in
      util/build_version.cc | '') continue ;;  # The crate has its own.
    esac
    printf '#include "rocksdb/%s"\n' "$file" >>"$work/chunk$((100 + sources / files_per_chunk)).cc"
    # Of ours; they need types that only the C interface's file knows.
    [ "$file" = db/c.cc ] && printf '#include "%s"\n' "$PWD"/crates/storage/native/{log_ahead,errors}.cc >>"$work/chunk$((100 + sources / files_per_chunk)).cc"
    sources=$((sources + 1))
  done < <(tr -d '\r' <"$rocksdb/rocksdb_lib_sources.txt"; echo)
  printf '#include "%s/build_version.cc"\n' "$rocksdb" >"$work/version.cc"

  # RocksDB checks at its start whether an ARM processor has CRC and PMULL instructions; older ones lack them.
  local compiler=${CXX:-${tools:+${tools}g++}} features=()
  [ "$machine" = x86_64 ] && features=(-msse2)
  [ "$machine" = aarch64 ] && features=(-march=armv8-a+crc+aes+crypto)
  local flags=(
    "-ffile-prefix-map=$work=/rocksdb" "-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    -std=c++20 -O2 -w -fPIC -ffunction-sections -fdata-sections -fno-omit-frame-pointer "${features[@]}"
    -include cstdint -I "$work/patched" -I "$rocksdb" -I "$rocksdb/rocksdb/include" -I "$rocksdb/rocksdb"
    -I "$zstd/zstd/lib" -I "$lz4/liblz4/lib"
    -DNDEBUG=1 -DLZ4=1 -DZSTD=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX
    -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT
    -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT
  )
  printf '"%s"\n' "${flags[@]}" >"$work/flags"
  (
    cd "$work"
    printf '%s\n' *.cc | xargs -n 1 -P "$(nproc)" sh -c '"$1" @flags -c "$2" -o "${2%.cc}.o"' compile "${compiler:-c++}" \
      || { echo "rocksdb: it does not compile; what the compiler said stands above" >&2; exit 1; }
    "${tools}ar" crs librocksdb.a *.o
  )
  # The C interface is one of the first chunks, the transactions and the version are among the last.
  local symbol
  for symbol in rocksdb_open settee_env_create settee_resume rocksdb_transactiondb_open GetRocksVersionAsString; do
    "${tools}nm" -g --defined-only "$work/librocksdb.a" 2>/dev/null | grep "$symbol" >/dev/null \
    || { echo "rocksdb: the library that was compiled has no $symbol" >&2; exit 1; }
  done
  # Renamed last, so that an interrupted run leaves nothing that looks finished.
  mv "$work/librocksdb.a" "$home/librocksdb.a"
  rm -rf "$work"
}

if [ ! -e "$home/librocksdb.a" ]; then
  mkdir -p "$home"
  exec 9> "$home/lock"
  flock 9
  [ -e "$home/librocksdb.a" ] || compile
fi
# What cargo compiled holds a copy of the library: of the one that this target directory was used with last.
linked="$CARGO_TARGET_DIR/rocksdb-linked"
if [ "$(cat "$linked" 2>/dev/null)" != "$home" ]; then
  [ ! -d "$CARGO_TARGET_DIR/${CARGO_BUILD_TARGET:-}/release" ] || cargo clean --quiet --release -p librocksdb-sys
  [ ! -d "$CARGO_TARGET_DIR/${CARGO_BUILD_TARGET:-}/debug" ] || cargo clean --quiet -p librocksdb-sys
  mkdir -p "$CARGO_TARGET_DIR"
  echo "$home" >"$linked"
fi
[ -z "$tools" ] || { printf '%s\n' "$home"; exit 0; }
[ "$(readlink .rocksdb 2>/dev/null)" = "$home" ] || ln -sfn "$home" .rocksdb
