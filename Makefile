# What each of these does, step by step, is in tests/run.
#
#   make test T=worker                     one test program only
#   make test T=worker::NAME               one test of it
#   make install PG_CONFIG=/path/pg_config into another server
#   make install DESTDIR=/path             below that directory
#   make matrix V="15.1 16.2" T=regress    some of its servers, one test program

.PHONY: help demo psql check test accept lint bench matrix install clean

help:
	@echo 'make demo     watch it work, on a throw-away cluster'
	@echo 'make psql     psql on a throw-away cluster with the extension'
	@echo 'make check    format, lint and unit tests: what needs no server'
	@echo 'make test     run every test (T=name: one test program)'
	@echo 'make accept   take what regress, isolation and reference find as expected (T=one of them)'
	@echo 'make lint     rustfmt, clippy, pgspot and plpgsql_check'
	@echo 'make bench    measure it (B="latency --quick": some of it, shortened)'
	@echo 'make matrix   run every test on PostgreSQL 15.1, 16.2, 17 and 18 (V=16.2: one)'
	@echo 'make install  into the server of PG_CONFIG (default: Debian'\''s PostgreSQL 15)'
	@echo 'make clean    remove all that was built'

test:
	@tests/run test $(T)

bench:
	@tests/run bench $(B)

matrix:
	@T='$(T)' tests/run matrix $(V)

install:
	@DESTDIR='$(DESTDIR)' tests/run install

accept:
	@tests/run accept $(T)

demo psql check lint clean:
	@tests/run $@
