#!/usr/bin/env bash
# Makes of the binary that cargo built the one that is run and shipped: without debug information, which lies beside it in
# settee.debug. Debuggers, profilers and backtraces of panics find it there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

built="$CARGO_TARGET_DIR/release/settee"
dist="$CARGO_TARGET_DIR/dist"

[ "$dist/settee" -nt "$built" ] && exit 0
mkdir -p "$dist"
objcopy --only-keep-debug --compress-debug-sections=zlib "$built" "$dist/settee.debug.new"
mv "$dist/settee.debug.new" "$dist/settee.debug"
(
  cd "$dist"
  objcopy --strip-all --add-gnu-debuglink=settee.debug "$built" settee.new
  mv settee.new settee
)
