# Two commands do all set-up on a fresh Debian machine with Rust: `make demo` and `make test`.
.PHONY: help demo test unit drills bench bench-quick bench-curve bench-figures bench-ring bench-bgpsec bench-bfd bench-nsr bench-accept install install-library clean

PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
UNITDIR ?= /lib/systemd/system

help:
	@echo "make demo    build, run a router with a full table in namespaces, kill its bgp, show what survives"
	@echo "make test    everything CI runs (needs root: namespaces, with stock routers as peers)"
	@echo "make unit    of that, formatting, clippy, unit, property and doc tests (about five minutes)"
	@echo "make drills  hours: long kill drills and attacks, 100,000 cases of each property, today's routers, cargo-deny"
	@echo "make bench-quick   the important rows against BIRD and FRR, about 3 minutes (needs root)"
	@echo "make bench         all rows against every router that can be installed, about an hour"
	@echo "make bench-curve   what a route and a peer cost against their number, plots in target/curve, about 20 minutes (needs root)"
	@echo "make install       binary, unit, manual pages, completions, schema, library; PREFIX and DESTDIR as usual"
	@echo "make install-library  of that, the library for programs in C alone: shared, static, header, manual page, pkg-config"
	@echo "make bench-figures measures and plots the figures of the XORP paper, about 5 minutes (needs root)"
	@echo "make bench-ring    a full table around three routers, over TCP, TLS and QUIC, about 5 minutes (needs root)"
	@echo "make bench-bgpsec  what routers' keys, signed paths, verifying and signing cost, about 20 minutes (needs root)"
	@echo "make bench-bfd     what BFD costs, and how soon a loss is in the kernel, beside BIRD and FRR, about 10 minutes (needs root)"
	@echo "make bench-nsr     what it costs that sessions outlive their host, with Redis, beside BIRD, FRR and GoBGP, about 40 minutes (needs root)"
	@echo "make bench-accept  makes today's instruction counts the baseline of make test"

demo:
	@scripts/install-deps demo
	cargo build --release --workspace --bin holdfast --bin holdfast-lab
	@scripts/as-root target/release/holdfast-lab demo

test:
	@scripts/install-deps test
	@scripts/test

unit:
	@scripts/install-deps test
	@scripts/test unit

drills:
	@scripts/drills

bench-quick:
	@scripts/install-deps bench-quick
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench run --quick $(BENCH)

bench:
	@scripts/install-deps bench
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench run --json target/bench.json $(BENCH)

bench-curve:
	@scripts/install-deps bench-quick
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench curve --svg target/curve $(BENCH)

bench-figures:
	@scripts/install-deps bench-quick
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench figures $(BENCH)

bench-ring:
	@scripts/install-deps bench-quick
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench ring --svg docs/figures/ring.svg $(BENCH)

bench-bgpsec:
	@scripts/install-deps demo
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench bgpsec $(BENCH)

bench-bfd:
	@scripts/install-deps bench-quick
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench bfd $(BENCH)

bench-nsr:
	@scripts/install-deps bench-nsr
	cargo build --release --workspace --bin holdfast --bin holdfast-bench
	target/release/holdfast-bench nsr $(BENCH)

bench-accept:
	@scripts/install-deps bench-quick
	cargo build --release --workspace --bin holdfast-bench
	target/release/holdfast-bench kernels --accept

install: install-library
	cargo build --release --workspace --bin holdfast
	scripts/install $(or $(CARGO_TARGET_DIR),target)/release/holdfast "$(DESTDIR)" "$(PREFIX)" "$(SYSCONFDIR)" "$(UNITDIR)"

install-library:
	cargo build --release -p holdfast-path-validation-c
	scripts/install-library $(or $(CARGO_TARGET_DIR),target)/release "$(DESTDIR)" "$(PREFIX)"

clean:
	cargo clean
