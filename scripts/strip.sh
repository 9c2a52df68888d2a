#!/usr/bin/env bash
# Makes the programs that are run and shipped of those that cargo built, `settee` and `settee-bench`: without debug information,
# which is in settee.debug and settee-bench.debug beside them. Debuggers and backtraces of panics find it there. The names of
# functions stay, for `settee profile`: people install the programs alone.
#
#   scripts/strip.sh [PROFILE]        (default: release)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
. scripts/target.sh

profile=${1:-release}
dist="$CARGO_TARGET_DIR/dist"

mkdir -p "$dist"
for name in settee settee-bench; do
  built="$CARGO_TARGET_DIR/${CARGO_BUILD_TARGET:-}/$profile/$name"
  [ "$dist/$name" -nt "$built" ] && continue
  # Names of data are of use to nobody without debug information: 5 % of the program.
  "${tools}nm" "$built" | awk '$2 ~ /^[bBdDrRvV]$/ { data[$3] } $2 ~ /^[tTwWiI]$/ { code[$3] } END { for (name in data) if (!(name in code)) print name }' >"$dist/$name.data"
  "${tools}objcopy" --only-keep-debug --compress-debug-sections=zlib "$built" "$dist/$name.debug.new"
  mv "$dist/$name.debug.new" "$dist/$name.debug"
  (
    cd "$dist"
    "${tools}objcopy" --strip-debug --strip-symbols="$name.data" --add-gnu-debuglink="$name.debug" "$built" "$name.new"
    mv "$name.new" "$name"
    rm "$name.data"
  )
done
