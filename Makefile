# One word for each job. Every one installs what it needs and this machine lacks (scripts/setup).

.DEFAULT_GOAL := help
.PHONY: help setup install package demo docs test python lint llvm scan spark objects traces rocksdb sqlite wiredtiger guest oracle fuzz bench clean
PREFIX ?= /usr/local

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## Install every Debian package that any of the jobs needs
	@scripts/setup --for test --for python --for llvm --for demo --for bench --for guest --for objects --for rocksdb --for sqlite --for wiredtiger

install: ## Install the command, the C library and its headers below PREFIX (/usr/local)
	@scripts/install --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

package: ## Make Debian packages and a tarball in build/package
	@scripts/package

demo: ## Build diskside, fetch real data and run the shipped functions over it
	@scripts/demo

docs: ## Build the pages of docs/ as a site, with a search, into build/site
	@scripts/docs

test: ## Run the whole quick suite: style, lints, tests, licences, whole-system tests
	@scripts/test

python: ## Build the Python package into build/python and run its tests
	@scripts/python

lint: ## Run the part of the suite that runs no code: format, style, clippy, docs, licences
	@scripts/test --lint

llvm: ## Build the LLVM tier's compiler and run the tests that need it
	@scripts/test-llvm

scan: ## Build the program that scans Parquet files, and compare it with DuckDB
	@scripts/scan

spark: ## Build the data source for Spark into build/spark, and compare both sources with Spark on plain files
	@scripts/python --spark

traces: ## Build the command with the exporter of traces, and test it beside a collector
	@scripts/traces

objects: ## Build what reads objects of S3 and HTTP for volumes, and test it beside real stores
	@scripts/objects

rocksdb: ## Read RocksDB's tables at a server, beside RocksDB
	@scripts/rocksdb

sqlite: ## Read databases of SQLite at a server, with SQLite itself
	@scripts/sqlite

wiredtiger: ## Run WiredTiger over files of a server, with WiredTiger itself
	@scripts/wiredtiger

guest: ## Boot a Linux kernel under QEMU and use Diskside from it, and its target from Diskside
	@tests/guest/run

oracle: ## Run 100,000 generated functions in all the ways there are, and demand one answer
	@tests/oracle/run

fuzz: ## Run the fuzzers for a minute each, from the corpus that is kept
	@fuzz/run

bench: ## Measure everything that is claimed to be fast beside what one would use instead (bench/)
	@bench/sandbox/run
	@bench/programs/run
	@bench/files/run
	@bench/exports/run
	@bench/volumes/run
	@bench/volumes/beside
	@bench/traversal/run
	@bench/pushdown/run --out build/pushdown
	@bench/python/run
	@bench/scan/run
	@bench/scan/spark
	@scripts/setup --for nfs
	@bench/scan/engines

clean: ## Remove everything that was built or fetched
	@rm -rf target build bench/*/target
