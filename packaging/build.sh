#!/usr/bin/env bash
# Builds the programs that are released, in a target directory of their own, and prints where they are: the same bytes whoever
# builds them, in whatever checkout and target directory, with the toolchain of rust-toolchain.toml on the same system.
#
#   packaging/build.sh [TARGET_DIRECTORY]       (default: dist-build in cargo's)
#
# Beside what `make build` does: paths are mapped to names that are the same everywhere, in Rust and in C; no time is kept; and
# the programs have the lists of their crates in them (`cargo audit bin`, cargo-auditable).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

checkout=$(pwd -P)
cargo_home=$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd -P)
target=${1:-$CARGO_TARGET_DIR/dist-build}
mkdir -p "$target/cc"
export CARGO_TARGET_DIR="$target"
target=$(cd "$target" && pwd -P)

# OpenSSL, which the Kafka client is built with, keeps the time at which it was built. It is the same for every commit, so that what was
# compiled for an earlier one may be used.
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C TZ=UTC

# Flags in RUSTFLAGS replace those of .cargo/config.toml.
flags=(-C force-frame-pointers=yes)
for map in "$checkout=/settee" "$cargo_home=/cargo" "$target=/target"; do flags+=("--remap-path-prefix=$map"); done
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf '%s' "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS

# In compilers of other names rather than in CFLAGS: OpenSSL keeps those, with the paths in them. It also keeps the folders that
# its engines and modules would be installed to, which nobody looks into.
for compiler in cc c++; do
  cat >"$target/cc/settee-$compiler" <<WRAPPER
#!/bin/bash
arguments=()
for argument in "\$@"; do
  case "\$argument" in -DENGINESDIR=* | -DMODULESDIR=*) argument=\${argument//"$target"//target} ;; esac
  arguments+=("\$argument")
done
exec /usr/bin/$compiler -ffile-prefix-map="$checkout"=/settee -ffile-prefix-map="$cargo_home"=/cargo -ffile-prefix-map="$target"=/target "\${arguments[@]}"
WRAPPER
  chmod +x "$target/cc/settee-$compiler"
done
export CC=settee-cc CXX=settee-c++ PATH="$target/cc:$SETTEE_CACHE/tools/bin:$PATH"

bash scripts/rocksdb.sh >&2
cargo auditable build --locked --release --bin settee --bin settee-bench >&2
bash scripts/strip.sh >&2

# What the maps have missed would differ elsewhere, and tells of the machine.
found=$(strings -n 4 "$target/dist/settee" "$target/dist/settee-bench" | { grep -F -e "$checkout/" -e "$cargo_home/" -e "$target/" || true; } | sort -u)
if [ -n "$found" ]; then
  printf 'build: the programs name paths of this machine:\n%s\n' "$found" >&2
  exit 1
fi
printf '%s\n' "$target/dist"
