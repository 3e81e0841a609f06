# Every task a person runs. Thin: it only calls the tools.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/target/release:$(PATH)

PYTEST := $(BIN)/python -m pytest -q --numprocesses 4 --dist loadscope --no-loadscope-reorder

.PHONY: help setup setup-dev demo test test-rust test-python proof lint fmt dashboards boards compose-env lock gate-budget bench-collector bench-controller bench-push bench-edge bench-start bench-recovery bench-pipeline evidence package release images fuzz calm chaos chain kernels emulator kafka airflow lab-clean clean docs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## system packages, Python environment, Rust binaries (repeats safely)
	@tools/setup

setup-dev:
	@tools/setup --dev

demo: ## the closed loop on four emulated PoPs; needs root; leaves out/demo/report.html
	@tools/need-root "make demo" "it makes network namespaces and TUN devices"
	@tools/setup --demo
	@$(BIN)/python -m lab demo --out out/demo

test: ## every behaviour; needs root for the network namespaces
	@tools/need-root "make test" "its end-to-end tests make network namespaces and TUN devices"
	@start=$$SECONDS; tools/setup --dev && $(MAKE) --no-print-directory --jobs 2 test-rust test-python \
	    && printf '== make test: green in %d s\n' $$((SECONDS - start))

# Runs beside the others, since most of its time is waiting, and in a network namespace of its own: a collector reads all
# connections that it finds. Its output comes whole, at its end.
test-rust:
	@said=$$(set -a; . tools/checked; unset MAKEFLAGS MFLAGS; unshare --net sh -c 'ip link set lo up && cargo test --release --workspace --locked --quiet' 2>&1); code=$$?; \
	    printf '%s\n' "$$said"; exit $$code

# Once before all, and not in each of the processes that run tests: pytest compiles what tests assert.
test-python:
	@ls tests/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 || $(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@$(PYTEST) --spent out/tests.json

proof: ## the long tests, which `make test` leaves out; needs root
	@tools/need-root "make proof" "it makes network namespaces and TUN devices"
	@tools/setup --dev && tools/get-packagers && tools/get-helm && tools/get-kubernetes-schemas
	@$(PYTEST) -m proof --spent out/proof.json

lint: setup-dev ## every linter and formatter, changing nothing
	@tools/lint

fmt: ## format Rust and Python
	cargo fmt
	$(BIN)/ruff check --fix -q . && $(BIN)/ruff format -q .

dashboards: ## write dashboards/json anew from dashboards/*.py
	@$(BIN)/python -m dashboards

boards: ## a picture of each dashboard, over six hours of a simulated fleet, into docs/images/boards; ten minutes
	@tools/setup --dev
	@$(BIN)/python -m testkit.hours docs/images/boards

compose-env: ## passwords for docker-compose.yml, into .env (mode 0600)
	@tools/compose-env

lock: ## write requirements.lock and, for the demo, requirements-demo.lock anew from pyproject.toml
	$(BIN)/uv pip compile -q --universal --generate-hashes --all-extras --no-emit-index-url pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --generate-hashes --extra lab --extra push --no-emit-index-url -c requirements.lock pyproject.toml -o requirements-demo.lock

bench-collector: ## the collector beside the kernel's floor and ss; needs root; writes out/bench/collector.json
	@tools/need-root "make bench-collector" "it makes a network namespace"
	@tools/setup
	@cargo build --release --locked --quiet -p springtide-collector --examples
	@$(BIN)/python -m bench collector

fuzz: ## half a minute for each parser of what an edge reads before it trusts it and of what the collector decodes
	@tools/setup
	@tools/fuzz

package: ## packages of the collector and the edge program, .deb and .rpm, into target/packages
	@tools/setup
	@tools/package

release: ## all that one installs from, with checksums and lists of what is in it, into dist; SIGN_KEY=FILE signs it; ARM64=1: for arm64, into dist-arm64
	@tools/setup
	@tools/release $(if $(ARM64),--arm64) $(if $(SIGN_KEY),--sign-key $(SIGN_KEY))

images: ## OCI images of collector, edge program and controller, made of dist by root without a daemon, into out/images; ARM64=1: for arm64, of dist-arm64, into out/images-arm64
	@tools/need-root "make images" "the files in an image belong to several users"
	@$(if $(ARM64),ARM64=1 )tools/images

calm: ## simulated weeks of 34 PoPs, of 20,000 client prefixes and of starts under our laws and the naive ones; writes out/bench/calm*
	@tools/setup
	@$(BIN)/python -m bench calm
	@$(BIN)/python -m bench calm-prefixes
	@$(BIN)/python -m bench calm-start

gate-budget: ## what a rollout of 3,000 edges spends of the gate's error budget, simulated; writes out/bench/gate.json
	@tools/setup
	@$(BIN)/python -m bench gate

bench-controller: ## the laws at 62,250 pairs and a million prefixes beside a bare scan; writes out/bench/controller.json
	@tools/setup
	@$(BIN)/python -m bench controller

bench-push: ## 30 edges through Ansible, 1,000 that pull, and one beside a bare ip -batch; needs root; writes out/bench/pu*.json
	@tools/need-root "make bench-push" "it makes network namespaces"
	@tools/setup
	@$(BIN)/python -m bench push
	@$(BIN)/python -m bench push-fleet
	@$(BIN)/python -m bench pull

bench-edge: ## the edge's eBPF program: fresh connections over emulated paths, and what it costs; needs root; writes out/bench/start-program.json and edge.json
	@tools/need-root "make bench-edge" "it makes network namespaces and loads a program into the kernel"
	@tools/setup
	@$(BIN)/python -m bench start-program
	@$(BIN)/python -m bench edge

bench-start: ## fresh connections at the default, by Riptide and by Springtide beside the limit, over twelve paths; needs root; writes out/bench/start.json
	@tools/need-root "make bench-start" "it makes network namespaces and loads a program into the kernel"
	@tools/setup
	@$(BIN)/python -m bench start

bench-recovery: ## fresh connections, and a page in a browser, over paths that lose packets, as bundles say beside the kernel's default; needs root; writes out/bench/recovery.json and page.json
	@tools/need-root "make bench-recovery" "it makes network namespaces and loads a program into the kernel"
	@tools/setup --browser
	@$(BIN)/python -m bench recovery
	@$(BIN)/python -m bench page

bench-pipeline: ## Kafka into the store beside files, bytes on disk, roll-up; writes out/bench/pipeline.json and rounds.json
	@tools/setup
	@$(BIN)/python -m bench pipeline
	@$(BIN)/python -m bench rounds

evidence: ## what the sources claim, measured again beside ours; needs root; writes docs/evidence and out/evidence/results.json; QUICK=1: small, into out/evidence only
	@tools/need-root "make evidence" "it makes network namespaces and loads a program into the kernel"
	@tools/setup $(if $(QUICK),--dev,--browser)
	@$(BIN)/python -m evidence $(if $(QUICK),--quick)

chaos: ## 20 rollouts, rollbacks and withdrawals on 20 edges under faults; needs root; SEED=N does it again; writes out/chaos.json
	@tools/need-root "make chaos" "it makes network namespaces"
	@tools/setup
	@PYTHONPATH=.:controller $(BIN)/python -m deploy.ansible.tests.chaos $(if $(SEED),--seed $(SEED))

chain: ## collectors, Kafka, store, Airflow, Ansible and edges, each killed once, and the books; needs root; writes out/chain.json
	@tools/need-root "make chain" "it makes network namespaces and TUN devices"
	@tools/setup
	@PYTHONPATH=.:controller $(BIN)/python -m pipeline.chain

docs: ## the documentation as a site, links checked, into out/site
	@tools/setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@printf '== docs: out/site/index.html; with its search: python3 -m http.server --bind 127.0.0.1 --directory out/site\n'

kernels: ## the edge's programs on Debian's kernels 5.10 to 7.x, in qemu by emulation; KERNELS="6.1 6.12" takes some; writes out/kernels.json
	@tools/need-root "make kernels" "it installs packages"
	@tools/setup --dev
	@$(BIN)/python -m testkit.kernels $(KERNELS)

emulator: ## the lab's emulator beside the kernel's netem and tbf, in a guest of qemu; needs root; writes out/emulator.json
	@tools/need-root "make emulator" "it makes network namespaces and TUN devices"
	@tools/setup --dev
	@cargo build --release --locked --quiet -p springtide-wan --examples
	@$(BIN)/python -m testkit.kernels.wan

kafka: ## a Kafka broker on loopback to play with, until Ctrl-C
	@tools/setup
	@$(BIN)/python -m testkit.kafka

airflow: ## Airflow with Springtide's jobs on loopback, until Ctrl-C; its home is out/airflow
	@tools/setup
	@$(BIN)/python -m pipeline.local out/airflow

lab-clean: ## remove every namespace and process that a lab left behind
	@$(BIN)/python -m lab clean

clean: lab-clean ## lab-clean, and everything that was built
	rm -rf target out dist .venv node_modules
