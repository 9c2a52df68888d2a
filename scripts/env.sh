# Where things that belong to the machine, not to a checkout, are kept. Sourced by the Makefile's
# recipes and the other scripts; a value that is already set stays.

: "${HOME:=/root}"
export HOME
export SETTEE_CACHE="${SETTEE_CACHE:-$HOME/.cache/settee}"

# Outside the checkout, and the same for every checkout: RocksDB takes about 4 minutes of two cores
# to compile, so it is compiled once per machine.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$SETTEE_CACHE/target}"

# rustup puts cargo here, and a shell that was started before has no such path yet.
case ":$PATH:" in
  *":$HOME/.cargo/bin:"*) ;;
  *) PATH="$HOME/.cargo/bin:$PATH"; export PATH ;;
esac
