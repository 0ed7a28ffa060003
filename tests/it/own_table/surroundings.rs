//! Row-level security and collations, which must not keep an account from following its row.

use super::{accounts, attach, prepare, told};
use crate::cluster::{Cluster, number, skip};

/// The application may enable row-level security on any table, also before it attaches one of its own.
#[test]
fn policies_keep_no_table_from_being_attached_unless_they_hide_its_rows() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    web.batch_execute("INSERT INTO shop.users (mail) VALUES ('a@example.com')")
        .unwrap();
    let all = "SELECT format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', c.oid::regclass) FROM pg_class c \
               JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e' WHERE c.relkind = 'r'";
    for row in client.query(all, &[]).unwrap() {
        client.batch_execute(row.get(0)).unwrap();
    }
    let mut owner = cluster.connect_as("app", "owner");
    owner
        .batch_execute("ALTER TABLE shop.users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        .unwrap();
    let refused = attach(&cluster, "shop.users", "'mail'").unwrap_err();
    let (code, detail) = told(&refused);
    assert_eq!(
        (code.as_str(), detail.contains("policies")),
        ("42501", true)
    );
    owner
        .batch_execute("ALTER TABLE shop.users NO FORCE ROW LEVEL SECURITY")
        .unwrap();
    // With status provisioned, each row gets a token.
    let attached = attach(&cluster, "shop.users", "'mail', existing => 'provisioned'");
    assert_eq!(attached.unwrap(), 1);
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 1);
}

/// PostgreSQL advises such a collation instead of citext.
#[test]
fn changes_are_followed_that_the_collation_of_a_column_does_not_see() {
    let (cluster, client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let (mut client, mut web) = prepare(&cluster, client);
    let icu = "SELECT count(*) FROM pg_collation WHERE collname LIKE '%-x-icu'";
    if number(&mut client, icu) == 0 {
        return skip("nondeterministic collations, as this server was built without ICU");
    }
    cluster
        .connect_as("app", "owner")
        .batch_execute(
            "CREATE COLLATION shop.any_case (PROVIDER = icu, LOCALE = 'und-u-ks-level1', DETERMINISTIC = false); \
             ALTER TABLE shop.users ALTER mail TYPE text COLLATE shop.any_case, ALTER nick TYPE text COLLATE shop.any_case; \
             GRANT USAGE ON SCHEMA shop TO web",
        )
        .unwrap();
    assert_eq!(attach(&cluster, "shop.users", "'mail', 'nick'").unwrap(), 0);
    web.batch_execute(
        "INSERT INTO shop.users (mail, nick) VALUES ('ada@example.com', 'ada'); \
         UPDATE shop.users SET mail = 'ADA@example.com', nick = 'lady'",
    )
    .unwrap();
    assert_eq!(accounts(&mut client), ["ada@example.com lady provisioned"]);
    web.batch_execute("UPDATE shop.users SET mail = 'adá@example.com', nick = 'lády'")
        .unwrap();
    assert_eq!(accounts(&mut client), ["adá@example.com lády provisioned"]);
}
