#!/usr/bin/env bash
# Makes of the binary that cargo built the one that is run and shipped: without debug information, which lies beside it in
# settee.debug. Debuggers and backtraces of panics find it there. The names of functions stay, for `settee profile`: people
# install the binary alone. That is 11 MB of 62.
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
  objcopy --strip-debug --add-gnu-debuglink=settee.debug "$built" settee.new
  mv settee.new settee
)
