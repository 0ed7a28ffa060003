# What each of these does, step by step, is in tests/run.
#
#   make demo STAY=1                       a mailbox and the page in the browser, until Enter
#   make test T=worker                     one test program only
#   make test T=worker::NAME               one test of it
#   make install PG_CONFIG=/path/pg_config into another server
#   make install DESTDIR=/path             below that directory
#   make matrix V="15.1 16.2" T=regress    some of its servers, one test program
#   make packages V="15 17"                packages for these majors only
#   make installed V=15                    tried on one release of Debian only
#   make torture S=60 T="fuzz deny"        a minute for each fuzz target, and some parts only

.PHONY: all help demo psql check test accept lint bench matrix install packages reproducible installed fresh torture pictures dist clean

help:
	@echo 'make demo     watch it work, on a throw-away cluster (STAY=1: with a mailbox and the page in the browser)'
	@echo 'make psql     psql on a throw-away cluster with the extension'
	@echo 'make check    format, lint and unit tests: what needs no server'
	@echo 'make test     run every test (T=name: one test program)'
	@echo 'make accept   take what regress, isolation and reference find as expected (T=one of them)'
	@echo 'make lint     rustfmt, clippy, cargo deny, pgspot and plpgsql_check'
	@echo 'make bench    measure it (B="latency --quick": some of it, shortened)'
	@echo 'make matrix   run every test on PostgreSQL 15.1, 16.2, 17 and 18 (V=16.2: one)'
	@echo 'make install  into the server of PG_CONFIG (default: Debian'\''s PostgreSQL 15)'
	@echo 'make packages   Debian packages and archives of the last commit (V=15: for one major)'
	@echo 'make reproducible   the packages built twice, elsewhere: each file is equal (V=15: one)'
	@echo 'make installed  the packages, installed on Debian 12, 13 and 14 under systemd, as root (V=15: one)'
	@echo 'make fresh      make demo and make test on a bare Debian 12, as root'
	@echo 'make torture    the strictest tools: fuzzing, a server with assertions, cargo deny (hours; T=deny: a part)'
	@echo 'make pictures   make the pictures of README and book anew, from the running page'
	@echo 'make dist       the archive for PGXN'
	@echo 'make clean    remove all that was built'

# What PGXN's client calls before `install`.
all:
	@tests/run build

test:
	@tests/run test $(T)

bench:
	@tests/run bench $(B)

matrix:
	@T='$(T)' tests/run matrix $(V)

install:
	@DESTDIR='$(DESTDIR)' tests/run install

packages:
	@tests/run packages $(V)

reproducible:
	@tests/run reproducible $(V)

installed:
	@tests/run installed $(V)

torture:
	@tests/run torture $(S) $(T)

accept:
	@tests/run accept $(T)

# make passes STAY=1 on in the environment.
demo psql check lint fresh pictures dist clean:
	@tests/run $@
