# Two commands: `make demo` and `make test`. Each installs what it needs first.
export PATH := $(HOME)/.cargo/bin:$(PATH)
SHELL := /bin/bash

# What is built beyond plain cargo: libraries that this system has. `make FEATURES= ...` leaves
# them out.
FEATURES ?= $(shell scripts/setup.sh features)
export FEATURES

.PHONY: help build demo test long bench fuzz lint rtl clean

help:            ## This list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build:           ## Build the thalweg program (target/release/thalweg)
	@scripts/setup.sh build
	cargo build --release --locked --package thalweg-cli --features '$(FEATURES)'

demo: build      ## Run the edge-gateway example and show what happened
	@examples/edge-gateway/demo.sh

test:            ## Run every test, against real peers too
	@scripts/setup.sh test
	scripts/test.py

long:            ## Run what takes minutes: ignored tests, long fuzzing, soak, stress, model checker
	scripts/long.sh

bench:           ## Measure the whole path per packet (bench/path.py); docs/performance.md has the others
	@bench/run.sh

fuzz:            ## Run each fuzz target for FUZZ_SECONDS (60)
	@scripts/setup.sh ci
	scripts/fuzz.sh

lint:            ## Format, clippy, documentation and licences, as CI does
	@scripts/setup.sh ci
	scripts/lint.sh

rtl:             ## Hold the accelerator in SystemVerilog against the simulator, and synthesise it
	@scripts/setup.sh ci
	rtl/check.sh

clean:           ## Remove everything that was built
	cargo clean
	rm -rf fuzz/target out
