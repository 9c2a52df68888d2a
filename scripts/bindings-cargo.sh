#!/usr/bin/env bash
# Cargo as scripts/bindings.sh gives it to maturin. That has it compile one package (`cargo rustc`), and cargo then gives each
# dependency only the features that this package asks for: all of them would be compiled once more, which takes five minutes.
# Built with the whole workspace they have the features that they have in the program, and are there already.
set -euo pipefail
[ "$1" = rustc ] || exec cargo "$@"
# Maturin describes the interpreter in variables. `make lint` has none of them, and what they change is compiled again after each lint.
unset "${!PYO3_@}"
exec cargo build --release --locked --quiet --workspace --lib --message-format json-render-diagnostics
