#!/usr/bin/env bash
# Prints nextest's filter for the tests that a change can break: those of the changed crates and of what depends on them.
#
#   scripts/changed_tests.sh [COMMIT]   changed since COMMIT: by default, the last one that passed `make test` here
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

since=${1:-$(cat "$SETTEE_CACHE/last-run/passed-commit" 2>/dev/null || true)}
git cat-file -e "$since^{commit}" 2>/dev/null || since=HEAD~1
files=$({ git diff --name-only "$since" --; git ls-files --others --exclude-standard; } | sort -u)
# What every crate is built with.
if grep -qxE 'Cargo\.(toml|lock)|rust-toolchain\.toml|\.cargo/.*|\.config/nextest\.toml' <<<"$files"; then
  echo 'all()'
  exit 0
fi
filter='none()'
while read -r folder; do
  [ -e "$folder/Cargo.toml" ] || continue
  name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)
  filter="$filter + rdeps($name)"
done < <(sed -nE 's#^((crates|bindings)/[^/]+)/.*#\1#p' <<<"$files" | sort -u)
# Two files outside of the crates are built into them.
if grep -qx 'default\.ini' <<<"$files"; then filter="$filter + rdeps(config)"; fi
if grep -q '^web/dist/' <<<"$files"; then filter="$filter + rdeps(web)"; fi
echo "$filter"
