# Which architecture is built for. Sourced, after env.sh, by the scripts that make a release.
#
# ARCH is Debian's name for it, as in `make dist ARCH=arm64`; without it, it is that of CARGO_BUILD_TARGET, or this machine's.
# Sets `machine`, the kernel's name for it (`uname -m`), and `tools`, the prefix of compilers and binutils, which is empty on a
# machine of that architecture. For another one CARGO_BUILD_TARGET is exported, which cargo and child scripts read.

case "${ARCH:-}" in
  '') machine=${CARGO_BUILD_TARGET:-$(uname -m)} ;;
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) echo "unknown architecture '$ARCH': ARCH is amd64 or arm64" >&2; exit 2 ;;
esac
machine=${machine%%-*}
tools=
if [ "$machine" != "$(uname -m)" ]; then
  tools="$machine-linux-gnu-"
  export CARGO_BUILD_TARGET="$machine-unknown-linux-gnu"
fi
# Build scripts of C libraries would take the name for a setting of theirs.
unset ARCH
