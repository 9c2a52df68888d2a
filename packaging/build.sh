#!/usr/bin/env bash
# Builds the programs that are released, in a target directory of their own, and prints where they are: the same bytes whoever
# builds them, in whatever checkout and target directory, with the toolchain of rust-toolchain.toml on the same system.
#
#   packaging/build.sh [TARGET_DIRECTORY]       (default: dist-build in cargo's)
#   ARCH=arm64 packaging/build.sh               cross-compiles (default: dist-build-aarch64)
#
# Beside what `make build` does: paths are mapped to names that are the same everywhere, in Rust and in C; no time is kept; and
# the programs have the lists of their crates in them (`cargo audit bin`, cargo-auditable).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
. scripts/target.sh

checkout=$(pwd -P)
cargo_home=$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd -P)
target=${1:-$CARGO_TARGET_DIR/$([ -z "$tools" ] && echo dist-build || echo "dist-build-$machine")}
mkdir -p "$target/cc"
export CARGO_TARGET_DIR="$target"
target=$(cd "$target" && pwd -P)

# OpenSSL, which the Kafka client is built with, keeps the time at which it was built. It is the same for every commit, so that what was
# compiled for an earlier one may be used.
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C TZ=UTC
# What `make` was started with is no business of the Makefiles of C libraries.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

# Flags in RUSTFLAGS replace those of .cargo/config.toml.
flags=(-C force-frame-pointers=yes)
for map in "$checkout=/settee" "$cargo_home=/cargo" "$target=/target"; do flags+=("--remap-path-prefix=$map"); done
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf '%s' "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS

# In compilers of other names rather than in CFLAGS: OpenSSL keeps those, with the paths in them. It also keeps the folders that
# its engines and modules would be installed to, which nobody looks into.
for compiler in cc c++; do
  # Debian's cross compilers have GCC's names only.
  case "$tools$compiler" in
    "$compiler") program=/usr/bin/$compiler ;;
    *++) program=/usr/bin/${tools}g++ ;;
    *) program=/usr/bin/${tools}gcc ;;
  esac
  cat >"$target/cc/settee-$compiler" <<WRAPPER
#!/bin/bash
arguments=()
for argument in "\$@"; do
  case "\$argument" in -DENGINESDIR=* | -DMODULESDIR=*) argument=\${argument//"$target"//target} ;; esac
  arguments+=("\$argument")
done
exec $program -ffile-prefix-map="$checkout"=/settee -ffile-prefix-map="$cargo_home"=/cargo -ffile-prefix-map="$target"=/target "\${arguments[@]}"
WRAPPER
  chmod +x "$target/cc/settee-$compiler"
done
export CC=settee-cc CXX=settee-c++ PATH="$target/cc:$SETTEE_CACHE/tools/bin:$PATH"

if [ -n "$tools" ]; then
  # Build scripts and macros run here. What is not found by pkg-config is not there: it would be this machine's.
  export HOST_CC=cc HOST_CXX=c++ HOST_AR=ar AR="${tools}ar" RANLIB="${tools}ranlib" NM="${tools}nm" STRIP="${tools}strip"
  export PKG_CONFIG_LIBDIR="/usr/$machine-linux-gnu/lib/pkgconfig"
  name=${CARGO_BUILD_TARGET^^}
  export "CARGO_TARGET_${name//-/_}_LINKER=${tools}gcc"
  # libclang reads the C library's headers of that architecture.
  export "BINDGEN_EXTRA_CLANG_ARGS_${CARGO_BUILD_TARGET//-/_}=--target=$machine-linux-gnu -isystem /usr/$machine-linux-gnu/include"
  ROCKSDB_LIB_DIR=$(bash scripts/rocksdb.sh)
  export ROCKSDB_LIB_DIR
else
  bash scripts/rocksdb.sh >&2
fi
cargo auditable build --locked --release --bin settee --bin settee-bench >&2
bash scripts/strip.sh >&2

# What the maps have missed would differ elsewhere, and tells of the machine.
found=$(strings -n 4 "$target/dist/settee" "$target/dist/settee-bench" | { grep -F -e "$checkout/" -e "$cargo_home/" -e "$target/" || true; } | sort -u)
if [ -n "$found" ]; then
  printf 'build: the programs name paths of this machine:\n%s\n' "$found" >&2
  exit 1
fi
printf '%s\n' "$target/dist"
