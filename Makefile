# make serve    a running server on http://127.0.0.1:5984, data in ./data
# make install  the programs `settee` and `settee-bench` in ~/.local/bin, or in DIR/bin with PREFIX=DIR
# make cluster  three nodes on http://127.0.0.1:15984, :25984 and :35984, data in ./cluster-data
#               (ARGS="--nodes 5 --ports 6001,6003,6005,6007,6009 --data DIR --admin NAME:PASSWORD"; --brokers 3 for a log in Kafka)
# make check    what a change can break, in a few minutes: lints, tests of the changed crates and of what depends on them, the quick suites
#               (SINCE=COMMIT; by default the last commit that passed `make test` here)
# make test     everything that CI runs: lints, cargo's tests, the black-box tests, the manual's examples and links
# make lint     formatting and lints of Rust, Python, Markdown, prose and the web interface
# make web      types and unit tests of the web interface
# make docs     the manual, as a book in docs/book
# make bench    how fast this machine serves it (BENCH_ARGS="--url http://…" for another server)
# make bench-all    the table and the chart of the manual's page on performance (BENCH_ARGS="--couchdb http://… --write")
# make bench-peers  the same beside PostgreSQL and Redis, which it installs from Debian's packages and runs in temporary folders
# make bench-clients  the same with clients that are none of ours: wrk, pgbench and redis-benchmark
# make bench-ten-million  ten million documents with random ids: loading, indexes, memory, disk, restart
# make bench-ids       the algorithms of generated ids: time, room on disk, compaction
# make bench-bindings  the databases in Python's and Node's processes beside the same over HTTP
# make pictures  those of the web interface in README and manual, in Chromium
# make soak     all tests at full length; in parts of at most two hours each: make soak-simulation, soak-units, soak-cluster,
#               soak-power, soak-stores, soak-search, soak-http, soak-programs
# make build    the programs alone
# make dist     what is released, in ./dist: tarballs, Debian package, container recipe, bill of materials, sums (docs/src/developers/releases.md)
#               (ARCH=arm64 or ARCH=amd64 for another architecture than this machine's)
# make release-check  the list of what has to hold before a release; builds everything twice (about half an hour of two cores); ARCH as above
# make bindings the packages for Python, Node, and Erlang and Elixir, in ./bindings/dist
# make sanitize the tests of the JavaScript engine under AddressSanitizer (docs/src/developers/unsafe-code.md)
#
# The profile is release for all of them but `make check`, whose profile, dev, compiles quickly. RocksDB is compiled once per
# machine (scripts/rocksdb.sh); cargo's CARGO_TARGET_DIR (default ~/.cache/settee/target) outlives the checkout too.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := serve

BIND ?= 127.0.0.1
PORT ?= 5984
DATA ?= data
PREFIX ?= $(HOME)/.local
SUITES ?=
SINCE ?=
BENCH_ARGS ?=
FILTER ?=
ARCH ?=

# The suites of each part of `make soak`; the suite `documentation` checks that each is in one.
SOAK_PARTS = cluster power stores search http programs
SOAK_cluster = cluster cluster_adoption cluster_api cluster_attachments cluster_cut_nodes cluster_environment cluster_faults cluster_joins cluster_monitoring cluster_placement cluster_proxies cluster_upgrades kafka_log replication replication_faults replication_memory replication_sources pouchdb_sync
SOAK_power = own_log power_cuts
SOAK_stores = answer_memory attachment_memory attachments auto_purge backups crash_recovery damaged_store document_memory expiry file_owners many_databases memory_limits mixed_load revision_trees storage_faults store_check time_bins views
SOAK_search = mango_queries mango_text search_clouseau search_faults search_model search_nouveau search_overload search_scores selector_overload \
  function_overload deep_documents hostile_functions query_languages node_query_server number_precision worker_confinement
SOAK_http = access_matrix access_model api_behaviour authentication authentication_security authorisation body_memory client_compatibility client_disconnects client_suites connection_limits cors_and_setup couchdb_suites \
  design_functions design_overload dev_mode document_access function_preview function_results function_security hostile_reads http_fuzz http_security indirect_access openapi reverse_proxies settings slow_readers tls \
  vectors
SOAK_programs = alerts bench_figures bench_workloads bindings check_functions client_libraries command_mistakes csv_loading documentation doctor example_files exports first_start foreign_packages \
  manual_examples metrics migration packages pouchdb_app profiles prose_lint quickstarts top traces web_interface
ARGS ?=

.PHONY: serve install cluster build docs check test lint lint-alone unit unit-alone web web-alone blackbox bench bench-all bench-peers bench-clients bench-ten-million bench-bindings bench-ids pictures bindings sanitize soak soak-simulation soak-units $(addprefix soak-,$(SOAK_PARTS)) setup setup-dist setup-docs setup-test dist release-check

env := . scripts/env.sh;
settee = "$$CARGO_TARGET_DIR/dist/settee"

setup:
	@bash scripts/setup.sh serve

setup-docs:
	@bash scripts/setup.sh docs

setup-dist:
	@ARCH=$(ARCH) bash scripts/setup.sh dist

setup-test:
	@bash scripts/setup.sh test

# The programs as they are shipped are $CARGO_TARGET_DIR/dist/settee and settee-bench, their debug information beside them.
binary = $(env) cargo build --release --bin settee --bin settee-bench && bash scripts/strip.sh

build: setup
	@$(binary)

# Built in a target directory of its own, with other flags: the same bytes everywhere.
dist: setup-dist
	@$(env) built=$$(ARCH=$(ARCH) bash packaging/build.sh) && python3 packaging/dist.py --binary "$$built/settee" --debug

release-check: setup-dist setup-test
	@$(env) ARCH=$(ARCH) python3 packaging/release_check.py $(ARGS)

# The first start makes a random admin password, keeps it in $(DATA)/admin-password and prints it.
serve: build
	@$(env) bash scripts/install.sh --hint "$$CARGO_TARGET_DIR/dist" "$(PREFIX)"
	@$(env) exec $(settee) serve --data $(DATA) --bind $(BIND) --port $(PORT) --generate-admin

install: build
	@$(env) bash scripts/install.sh "$$CARGO_TARGET_DIR/dist" "$(PREFIX)"

# With --brokers it fetches Kafka and what that needs, once per machine (scripts/brokers.py).
cluster:
	@bash scripts/setup.sh cluster
	@$(binary)
	@$(env) exec python3 scripts/cluster.py $(ARGS)

lint: setup-test
	@$(MAKE) --no-print-directory lint-alone

# Clippy has the profile of the program, whose dependencies' build scripts it shares.
lint-alone:
	@$(env) cargo fmt --all --check
	@$(env) python3 scripts/circles.py
	@$(env) cargo clippy --quiet --release --workspace --all-targets -- -D warnings
	@$(env) cargo fetch --locked --quiet # of other systems too: cargo-deny looks at all
	@$(env) $$SETTEE_CACHE/tools/bin/cargo-deny --offline --log-level error check licenses bans sources
	@$(env) $$SETTEE_CACHE/lint/bin/ruff format --quiet --check . && $$SETTEE_CACHE/lint/bin/ruff check --quiet .
	@$(env) $$SETTEE_CACHE/lint/bin/rumdl check --quiet .
	@python3 scripts/prose_lint.py
	@cd web && node_modules/.bin/biome check --error-on-warnings --log-level=warn .

# The first time on a machine this compiles mdBook, which takes about two and a half minutes of two cores.
docs: setup-docs
	@$(env) $$SETTEE_CACHE/tools/bin/mdbook build docs

# Tests wait for syncs more than they compute: their files are in memory, and more tests run at once than there are processors.
# Stores reserve no room there, which the kernel would clear (scripts/reserve_nothing.c).
in_memory = $$([ -d /dev/shm ] && [ "$$(df --output=avail /dev/shm | tail -n 1)" -gt 4000000 ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo "TMPDIR=/dev/shm LD_PRELOAD=$$SETTEE_CACHE/tools/reserve_nothing.so")
nextest = env $(in_memory) $$SETTEE_CACHE/tools/bin/cargo-nextest nextest run --test-threads $$(($$(nproc) * 5 / 2))
stage = bash scripts/stage.sh

# FILTER is nextest's: make unit FILTER='package(mango)'
unit: setup-test
	@$(MAKE) --no-print-directory unit-alone

# The documentation's examples, which are compiled crate by crate and leave a processor idle, run concurrently. Printed only if they fail.
unit-alone:
	@$(env) printed=$$(mktemp); cargo test --quiet --release --workspace --doc >"$$printed" 2>&1 & examples=$$!; \
	  trap 'kill $$examples 2>/dev/null || :' INT TERM; code=0; \
	  $(nextest) --release --workspace $(if $(FILTER),-E '$(FILTER)') || code=$$?; \
	  wait $$examples || { code=1; cat "$$printed"; }; \
	  rm -f "$$printed"; exit $$code

web: setup-test
	@$(MAKE) --no-print-directory web-alone

web-alone:
	@cd web && node_modules/.bin/tsc --noEmit && node tools/test.mjs

# Suites, and options of tests/run.py: make blackbox SUITES="vectors http_fuzz -x"
blackbox: setup-test
	@$(binary)
	@$(env) python3 tests/run.py $(SUITES)

# All tests are built, also when some are run: with fewer packages, cargo gives dependencies other features and compiles them again.
check:
	@$(stage) begin
	@$(stage) setup bash scripts/setup.sh test
	@$(stage) lint $(MAKE) --no-print-directory lint-alone
	@$(stage) web $(MAKE) --no-print-directory web-alone
	@$(env) selected=$$(python3 scripts/changed_tests.py $(SINCE)) && eval "$$selected" && echo "unit tests of: $${packages:-no package}" \
	  && $(stage) build cargo build --quiet --bin settee --bin settee-bench --tests --workspace \
	  && { [ -z "$$packages" ] || $(stage) unit $(nextest) --workspace --no-tests pass -E "$$packages"; } \
	  && { [ -z "$$packages" ] || $(stage) examples cargo test --quiet --workspace --doc; } \
	  && python3 tests/run.py --stage --quick --changed "$$suites" --binary "$$CARGO_TARGET_DIR/debug/settee"

# What the suite `bindings` packs (scripts/bindings-cargo.sh). Compiled there, it would take a minute of the black-box tests.
libraries = cargo build --quiet --release --locked --workspace --lib

test:
	@$(stage) begin
	@$(stage) setup bash scripts/setup.sh test
	@$(stage) lint $(MAKE) --no-print-directory lint-alone
	@$(stage) web $(MAKE) --no-print-directory web-alone
	@$(env) $(stage) program bash -c '$(binary)'
	@$(env) $(stage) tests bash -c 'cargo build --quiet --release --workspace --tests && $(libraries)'
	@$(stage) unit $(MAKE) --no-print-directory unit-alone
	@$(env) python3 tests/run.py --stage
	@$(stage) passed

# One part that fails does not stop the others.
soak:
	@$(MAKE) --no-print-directory --keep-going soak-simulation soak-units $(addprefix soak-,$(SOAK_PARTS))

soak-simulation: setup-test
	@$(env) SETTEE_SEEDS=1000000 $$SETTEE_CACHE/tools/bin/cargo-nextest nextest run --profile soak --release -p cluster --no-capture -E 'test(simulation::)'
	@$(env) SETTEE_SEEDS=100000 $$SETTEE_CACHE/tools/bin/cargo-nextest nextest run --profile soak --release -p raft-log --no-capture -E 'test(nothing_acknowledged_is_lost)'
	@$(env) SETTEE_PLACEMENT_SEEDS=10000 $$SETTEE_CACHE/tools/bin/cargo-nextest nextest run --profile soak --release -p member --no-capture -E 'test(placement::simulation::)'

# On a real disk, which /tmp is not everywhere.
soak-units: setup-test
	@$(env) mkdir -p $$SETTEE_CACHE/test-runs && TMPDIR=$$SETTEE_CACHE/test-runs $$SETTEE_CACHE/tools/bin/cargo-nextest nextest run --profile soak --release --workspace

$(addprefix soak-,$(SOAK_PARTS)): soak-%: setup-test
	@$(binary)
	@$(env) python3 tests/run.py --soak $(SOAK_$*)

bindings: setup-test
	@bash scripts/bindings.sh $(CURDIR)/bindings/dist

sanitize: setup-test
	@bash scripts/sanitize.sh

bench: build
	@$(env) $(settee) bench $(BENCH_ARGS)

bench-all: build
	@$(env) python3 scripts/bench all --binary $(settee) $(BENCH_ARGS)

bench-peers: build
	@$(env) python3 scripts/bench peers --install --binary $(settee) $(BENCH_ARGS)

bench-clients: build
	@$(env) python3 scripts/bench clients --install --binary $(settee) $(BENCH_ARGS)

bench-ten-million: build
	@$(env) python3 scripts/bench ten-million --binary $(settee) $(BENCH_ARGS)

bench-bindings: bindings
	@$(binary)
	@$(env) python3 scripts/bench bindings --binary $(settee) $(BENCH_ARGS)

bench-ids: build
	@$(env) python3 scripts/bench ids --binary $(settee) $(BENCH_ARGS)

pictures: setup-test
	@$(binary)
	@$(env) python3 scripts/pictures.py $(settee)
