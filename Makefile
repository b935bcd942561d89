# Two commands do all set-up on a fresh Debian machine with Rust: `make demo` and `make test`.
.PHONY: help demo test drills clean

help:
	@echo "make demo    build, run a router with a full table in namespaces, kill its bgp, show what survives"
	@echo "make test    everything CI runs (needs root: namespaces, BIRD and FRR as peers)"
	@echo "make drills  the long versions of the kill drills"

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

clean:
	cargo clean
