#!/usr/bin/env bash
# The tests of crates/quickjs under LLVM's AddressSanitizer, QuickJS's C code included: uses of freed memory, reads and writes
# beyond a block, and leaks. Arguments go to `cargo test`. What it can and cannot see: docs/src/developers/unsafe-code.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

# Code of its own, so that the usual builds stay as they are.
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/sanitize"
# The flag is not stable in rustc, but what it needs comes with the stable toolchain.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes"
# The C code must be made for LLVM's sanitizer too: gcc's would be a second one.
export CC="${CC:-clang}"

# With a target, flags are not for build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
exec cargo test -p quickjs --lib --target "$host" "$@"
