# Two commands do all set-up on a fresh Debian machine with Rust: `make demo` and `make test`.
.PHONY: help demo test drills bench bench-quick bench-accept clean

help:
	@echo "make demo    build, run a router with a full table in namespaces, kill its bgp, show what survives"
	@echo "make test    everything CI runs (needs root: namespaces, BIRD and FRR as peers)"
	@echo "make drills  the long versions of the kill drills"
	@echo "make bench-quick   the important rows against BIRD and FRR, about 3 minutes (needs root)"
	@echo "make bench         all rows against every router that can be installed, about an hour"
	@echo "make bench-accept  makes today's instruction counts the baseline of make test"

demo:
	@scripts/install-deps demo
	cargo build --release -p holdfast-holdfast -p holdfast-lab
	@scripts/as-root target/release/holdfast-lab demo

test:
	@scripts/install-deps test
	@scripts/test

drills:
	@scripts/install-deps test
	cargo build --release -p holdfast-holdfast
	HOLDFAST_DRILLS=$${HOLDFAST_DRILLS:-20} cargo test --release -p holdfast-lab --test kills -- --test-threads=1 --nocapture

bench-quick:
	@scripts/install-deps bench-quick
	cargo build --release -p holdfast-holdfast -p holdfast-bench
	target/release/holdfast-bench run --quick $(BENCH)

bench:
	@scripts/install-deps bench
	cargo build --release -p holdfast-holdfast -p holdfast-bench
	target/release/holdfast-bench run --json target/bench.json $(BENCH)

bench-accept:
	@scripts/install-deps bench-quick
	cargo build --release -p holdfast-bench
	target/release/holdfast-bench kernels --accept

clean:
	cargo clean
