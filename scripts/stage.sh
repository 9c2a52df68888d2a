#!/usr/bin/env bash
# Runs one stage of `make check` or `make test`, prints how long it took, and keeps the figures.
#
#   scripts/stage.sh begin              starts the list of a run, and keeps the list of the previous run
#   scripts/stage.sh NAME COMMAND...    runs a stage
#   scripts/stage.sh passed             records the commit that the run started with, if nothing was uncommitted then
#
# tests/run.py prints the list before its last line.
set -euo pipefail
. "$(dirname "$0")/env.sh"

folder="$SETTEE_CACHE/last-run"
mkdir -p "$folder"
if [ "$1" = begin ]; then
  [ ! -e "$folder/stages.tsv" ] || mv "$folder/stages.tsv" "$folder/stages-before.tsv"
  : >"$folder/stages.tsv"
  # Before the tests: a commit that is made while they run is not what they test.
  rm -f "$folder/started-commit"
  if changes=$(git status --porcelain 2>/dev/null) && [ -z "$changes" ]; then git rev-parse HEAD >"$folder/started-commit"; fi
  exit 0
fi
if [ "$1" = passed ]; then
  [ ! -e "$folder/started-commit" ] || mv "$folder/started-commit" "$folder/passed-commit"
  exit 0
fi
name=$1
shift
# Not piped: what the command prints is seen at once. `times` counts this shell's children.
began=${EPOCHREALTIME//[.,]/}
code=0
"$@" || code=$?
took=$((${EPOCHREALTIME//[.,]/} - began))
# In this shell itself: a subshell has children of its own.
times >"$folder/times"
cpu=$(sed -n 2p "$folder/times" | awk '{ for (i = 1; i <= 2; i++) { split($i, p, "[ms]"); sum += p[1] * 60 + p[2] } printf "%.1f", sum }')
printf '%s\t%d.%d\t%s\n' "$name" $((took / 1000000)) $((took / 100000 % 10)) "$cpu" >>"$folder/stages.tsv"
printf 'stage %s: %d.%d s, %s CPU seconds%s\n' "$name" $((took / 1000000)) $((took / 100000 % 10)) "$cpu" \
  "$([ $code = 0 ] || echo ", failed with $code")"
exit $code
