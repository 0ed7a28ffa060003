. /tmp/dev/env /work/w/enqueue; cd $D/cg; W=$D/cg/plain; rm -rf $W; mkdir -p $W; chown pgdev $W; BIN=$STAGE$B
su pgdev -c "$BIN/initdb -D $W/data -U postgres -A trust -N" >/dev/null
printf "fsync=off\njit=off\nautovacuum=off\nmax_connections=20\n" >> $W/data/postgresql.conf
su pgdev -c "$BIN/postgres --single -j -D $W/data postgres" >/dev/null 2>$W/create.err <<C
CREATE TYPE account_status AS ENUM ('provisioned', 'active', 'suspended');  CREATE TABLE accounts (    id bigserial primary key,    email text NOT NULL unique,    status account_status NOT NULL DEFAULT 'provisioned',    login text NOT NULL unique,    created_at bigint NOT NULL DEFAULT floor(extract(epoch FROM now())),    status_changed_at bigint,    activated_at bigint,    suspended_at bigint,    unsuspended_at bigint);

C
a=$(./run.sh plain $PWD/ins20.sql a); b=$(./run.sh plain $PWD/ins120.sql b); echo "plain: $(( (b-a)/100 )) per insert"
a=$(./run.sh plain $PWD/prep20.sql pa); b=$(./run.sh plain $PWD/prep120.sql pb); echo "plain: $(( (b-a)/100 )) per prepared insert"
