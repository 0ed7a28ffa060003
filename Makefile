# What each of these does, step by step, is in tests/run.
#
#   make test T=worker                     one test program only
#   make install PG_CONFIG=/path/pg_config into another server

.PHONY: help demo test lint bench matrix install clean

help:
	@echo 'make demo     watch it work, on a throw-away cluster'
	@echo 'make test     run every test (T=name: one test program)'
	@echo 'make lint     rustfmt, clippy and pgspot'
	@echo 'make bench    measure it (B="latency --quick": some of it, shortened)'
	@echo 'make matrix   run every test on PostgreSQL 17 and 18, built here once'
	@echo 'make install  into the server of PG_CONFIG (default: Debian'\''s PostgreSQL 15)'
	@echo 'make clean    remove all that was built'

test:
	@tests/run test $(T)

bench:
	@tests/run bench $(B)

demo lint matrix install clean:
	@tests/run $@
