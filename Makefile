# Every chore has one entry point. `make` lists them.

SHELL := /bin/bash
CARGO ?= cargo
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
DENY := $(shell command -v cargo-deny || echo .tools/bin/cargo-deny)

.PHONY: help run test test-fast lint package install-c release attack bench bench-generators bench-crosscheck bench-instructions bench-path soak published fuzz conformance tools clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

run: ## build Apus and serve examples/site over HTTP and HTTPS
	@examples/run

test: tools lint ## everything that has to hold: lint, all tests, the release binary on the example site and under attack
	@# Link-time optimisation uses one core, and many tests wait: the release binary is built beside them, and twice as many
	@# tests as cores run at once. The tests of PHP's side need no binary, and run while its end is awaited.
	@nice -n 5 $(CARGO) build --release --locked --quiet -p apus-cli & build=$$!; \
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} $(CARGO) test --workspace --locked --no-fail-fast; tests=$$?; \
	php/tests/run || tests=$$?; \
	wait $$build && exit $$tests
	examples/run .ci/smoke
	python3 attack/run.py $(ATTACK)
	conformance/h2spec

test-fast: ## the tests that need no other programs, in under three minutes after a build
	.ci/test-fast

lint: ## format, structure, names, comments, the figures of BENCHMARKS and README, what crates.io requires, the features of apus, clippy, documentation, licences and sources of dependencies
	$(CARGO) fmt --all --check
	.ci/structure
	.ci/names
	.ci/prose
	.ci/figures
	.ci/package
	.ci/dashboard
	CARGO="$(CARGO)" .ci/features
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --features apus/full
	$(DENY) --all-features check --hide-inclusion-graph licenses bans sources
	@.ci/advisories $(DENY)

package: ## package and build each crate as for crates.io; nothing is published
	packages=$$(.ci/package --options) && $(CARGO) package --locked $$packages

install-c: ## libapus with its header, below PREFIX=/usr/local
	$(CARGO) build --release --locked -p apus-capi
	crates/tools/capi/install/run $(PREFIX)

release: ## the program as it is released: built twice, and laid out by what runs under the load of make bench; RELEASE=--library for libapus
	python3 bench/release.py $(RELEASE)

attack: tools ## every attack of docs/security.md on the release binary; ATTACK="--peer nginx --only cache --markdown"
	$(CARGO) build --release --locked -p apus-cli
	python3 attack/run.py $(ATTACK)

bench: ## Apus against nginx, H2O, HAProxy, Varnish, web frameworks and the floors on this machine; BENCH="--case 1k-c64 --rounds 3"
	python3 bench/compare.py $(BENCH)

bench-instructions: ## instructions of a request, counted by callgrind; BENCH="--case proxy-1k --write"
	python3 bench/instructions.py $(BENCH)

bench-generators: ## CPU of apus bench for a request, beside wrk, h2load and oha; BENCH="--case http1"
	python3 bench/generators.py $(BENCH)

bench-crosscheck: ## what apus bench reports of known schedules, beside h2load, wrk and k6, which Go builds; BENCH="--without-k6"
	python3 bench/crosscheck.py $(BENCH)

published: ## the figures that other systems have published, beside figures of the same loads on this machine, in one page; PUBLISHED=--quick
	bench/published/run $(PUBLISHED)

bench-path: ## downloads over HTTP/2 and HTTP/3 through the same delay and loss, as root; BENCH="--case 20ms-0.0% --nginx"
	python3 bench/path.py $(BENCH)

soak: ## Apus under load, reloaded every two seconds; SOAK="--seconds 600", SOAK=--php with PHP behind it, SOAK=--embedded for libapus in a C program
	python3 bench/soak.py $(SOAK)

# Coverage instrumentation does not link with LTO.
fuzz: ## every fuzz target for FUZZ_SECONDS each (nightly Rust, cargo-fuzz)
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --quiet --locked cargo-fuzz
	@for target in $$(cargo +nightly fuzz list); do \
		echo "== $$target"; \
		CARGO_PROFILE_RELEASE_LTO=off cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

conformance: tools ## HTTP/2 by h2spec; WebSocket by the Autobahn suite, which it fetches; HTTP/1.1 by the tables of its RFCs, beside hyper, by class of attack, with real clients; and handlers in C
	conformance/h2spec
	conformance/autobahn
	conformance/embedded
	$(CARGO) test --locked -p apus-http --test it
	$(CARGO) test --locked -p apus-net --test it -- framing h2 limits persistence proxy_protocol
	$(CARGO) test --locked -p apus-client --test it -- framing h2 persistence
	$(CARGO) test --locked -p apus-cli --test it -- attacks clients under_load

tools: ## install what the tests need and this machine lacks
	@.ci/tools

clean: ## remove what was built
	$(CARGO) clean
	rm -rf .tools bench/.build bench/.run examples/site/public/downloads/*.csv
