#!/usr/bin/env bash
# Runs one stage of `make check` or `make test`, prints how long it took, and keeps that.
#
#   scripts/stage.sh begin              starts the list of a run; that of the run before is kept beside it
#   scripts/stage.sh NAME COMMAND...    runs a stage
#
# tests/run.py prints the list, before the line that it closes with.
set -euo pipefail
. "$(dirname "$0")/env.sh"

folder="$SETTEE_CACHE/last-run"
mkdir -p "$folder"
if [ "$1" = begin ]; then
  [ ! -e "$folder/stages.tsv" ] || mv "$folder/stages.tsv" "$folder/stages-before.tsv"
  : >"$folder/stages.tsv"
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
printf 'stage %s: %d.%d s, %s s of processors%s\n' "$name" $((took / 1000000)) $((took / 100000 % 10)) "$cpu" \
  "$([ $code = 0 ] || echo ", failed with $code")"
exit $code
