#!/usr/bin/env bash
# Puts the programs that were built where the shell finds them.
#
#   scripts/install.sh FROM PREFIX          copies settee and settee-bench from the folder FROM to PREFIX/bin
#   scripts/install.sh --hint FROM PREFIX   prints how to get them onto the PATH, unless they are there already
set -euo pipefail

is_hint=
if [ "${1:-}" = --hint ]; then
  is_hint=1
  shift
fi
from=$1
bin=$2/bin

if [ -n "$is_hint" ]; then
  found=$(command -v settee || true)
  if [ -n "$found" ] && cmp -s "$found" "$from/settee"; then
    exit
  fi
  [ -z "$found" ] || echo "The settee of your PATH, $found, is another one than this."
  echo "The program is $from/settee. To run it as \`settee\` in other terminals: make install"
  exit
fi

for name in settee settee-bench; do
  install -D -m 755 "$from/$name" "$bin/$name"
done
echo "settee and settee-bench are in $bin"
case ":$PATH:" in
  *":$bin:"*) ;;
  *) echo "Your shell does not look there yet: export PATH=\"$bin:\$PATH\"" ;;
esac
