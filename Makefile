# The developer's front door. `make demo` and `make test` install what is missing (Debian 12) and do the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build demo test lint bench labs instructions dpdk flamegraph docs fuzz soak clean

# Namespaces and packet ports need root.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
CARGO := . scripts/cargo-env && choose_cargo && cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

help: ## this list
	@echo "Carrack: a software carrier edge. Commands:"
	@awk -F ':.*## ' '/^[a-z]+:.*## /{ printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing (Debian packages, Rust); quick when nothing is
	@bash scripts/setup

build: setup ## the optimised executable, target/release/carrack (10 minutes the first time)
	@$(CARGO) build --release --locked -p carrack

demo: build ## real programs reach real servers through Carrack, in network namespaces (root; 15 s once built)
	@$(SUDO) $(TARGET)/release/carrack lab demo

test: setup ## everything: format, clippy, all tests, bench smoke, documentation
	@bash scripts/test

lint: setup ## format and clippy only (8 minutes the first time)
	@$(CARGO) fmt --all -- --check && cargo clippy --workspace --all-targets --locked -- -D warnings

bench: build ## forwarding speed, in process, no NIC needed (15 s once built)
	@for sessions in 1000 1000000; do $(TARGET)/release/carrack bench forward --sessions $$sessions --seconds 5 || exit 1; done

labs: build ## the published tests beside their published figures (minutes, memory as there is)
	@for lab in eantc paper bison; do $(TARGET)/release/carrack bench $$lab || exit 1; done

instructions: setup ## instructions a packet (valgrind) beside the committed ones (1 minute once built)
	@$(CARGO) run -q --locked -p carrack-xtask -- instructions

dpdk: setup ## build against the newer DPDK of Debian 13 (24.11), unpacked under target/ (5 minutes)
	@bash scripts/dpdk-newer

flamegraph: setup ## where the packet path spends its time, as target/flamegraph.svg (perf)
	@bash scripts/flamegraph

docs: setup ## write the generated pages anew, then build the Rust documentation
	@bash scripts/docs

fuzz: setup ## every fuzz target for SECONDS each (default 60)
	@bash scripts/fuzz $(or $(SECONDS),60)

soak: setup ## all tests optimised, with SEEDS simulated networks (default 2000)
	@export CARRACK_SIMULATIONS=$(or $(SEEDS),2000); $(CARGO) test --release --workspace --locked --lib --tests -- --include-ignored --skip network

clean: ## remove what was built
	@$(CARGO) clean && rm -rf target fuzz/target
