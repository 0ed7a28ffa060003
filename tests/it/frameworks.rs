//! The pages "From your framework": their functions, as they are printed, schedule an order's confirmation with an
//! attachment in the transaction of the order, as a member of `mailroom_app`. And the routes of the page "Events".

mod routes;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use postgres::Client;
use serde_json::{Value, json};

use crate::book::block;
use crate::cluster::{Cluster, number};

/// A name with the signs that end a quoted string or begin a tag.
const CUSTOMER: &str = r#"Hopper, "Größe" \ <Grace>"#;

/// A file of tests/frameworks.
fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/frameworks").join(name)
}

/// A database with the table of orders, one of which is refused at COMMIT, and a folder for a program.
fn shop() -> (Cluster, Client, PathBuf) {
    let cluster = Cluster::start(&["mailroom.collect = off"]);
    let mut client = cluster.create_database_with_schema("app");
    client
        .batch_execute(&block("docs/guides/node.md", "sql"))
        .unwrap();
    client
        .batch_execute(
            "CREATE ROLE web LOGIN IN ROLE mailroom_app; GRANT SELECT, INSERT ON orders TO web; \
             GRANT USAGE ON orders_id_seq TO web; \
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$; \
             CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
                 WHEN (NEW.customer = 'Late') EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    let folder = cluster.scratch();
    (cluster, client, folder)
}

/// Gives orders to a program of tests/frameworks, and checks what it says and what the database has then.
fn check(cluster: &Cluster, client: &mut Client, mut program: Command) {
    let invoice: Vec<u8> = (0..=255).collect();
    let hex: String = invoice.iter().map(|byte| format!("{byte:02x}")).collect();
    let orders = json!([
        [CUSTOMER, "grace@example.com", hex],
        ["Ann", "ann@", "25"],
        ["Ann", "ann@example.com>, <eve@example.com", "25"],
        ["Ann", "ann@example.com", ""],
        ["Late", "late@example.com", "25"],
        ["Ann", "ann@example.com", "25"],
    ]);
    let mut child = program
        .arg(cluster.socket())
        .current_dir(cluster.scratch())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = orders.to_string();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let told: Vec<&str> = results.iter().map(|one| one.as_str().unwrap()).collect();
    let expected = [
        "order ",
        "refused 22P02: recipients[1] \"\"Ann\" <ann@>\" has no domain name behind the @. An address is local@domain",
        "refused 22P02: recipients[1] ",
        "refused 22023: It is empty. ",
        "failed 23514",
        "order ",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}, not {expected}");
    }

    // Nothing is left of the four in between: no order, no mail, no file.
    for table in ["orders", "outbox", "outbox_attachments", "outbox_files"] {
        let rows = number(client, &format!("SELECT count(*) FROM {table}"));
        assert_eq!(rows, 2, "{table}");
    }
    let order = told[0].strip_prefix("order ").unwrap();
    let row = client
        .query_one(
            "SELECT m.recipients, m.reply_to, m.subject, m.body_text, m.body_html, m.attachment_bytes::bigint, \
                 f.filename, f.content_type, f.content, o.customer, o.id::text \
             FROM outbox m, mailroom_attachments(m.id) f, (SELECT * FROM orders ORDER BY id LIMIT 1) o ORDER BY m.id LIMIT 1",
            &[],
        )
        .unwrap();
    let lists: [Vec<String>; 2] = [row.get(0), row.get(1)];
    assert_eq!(
        lists[0],
        [r#""Hopper, \"Größe\" \\ <Grace>" <grace@example.com>"#]
    );
    assert_eq!(lists[1], ["Help desk <help@example.com>"]);
    let texts: Vec<String> = [2, 3, 4, 6, 7, 9, 10].map(|column| row.get(column)).into();
    assert_eq!(texts[0], format!("Your order {order}"));
    assert_eq!(
        texts[1],
        format!("Dear {CUSTOMER},\n\nthank you for order {order}.")
    );
    let html = texts[2].replace("&quot;", "\"");
    assert!(
        html.contains(r#"Dear Hopper, "Größe" \ &lt;Grace&gt;,"#),
        "{html}"
    );
    assert_eq!(texts[3], format!("invoice-{order}.pdf"));
    assert_eq!(texts[4..], ["application/pdf", CUSTOMER, order]);
    assert_eq!(row.get::<_, i64>(5), 256);
    assert_eq!(row.get::<_, Vec<u8>>(8), invoice);
}

// needs: aiosmtpd
#[test]
fn django_schedules_with_the_order() {
    let (cluster, mut client, folder) = shop();
    let package = folder.join("shop");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    fs::copy(file("models.py"), package.join("models.py")).unwrap();
    let page = block("docs/guides/django.md", "python");
    fs::write(package.join("confirmation.py"), page).unwrap();
    let mut program = crate::mailbox::python();
    program
        .arg(file("call_django.py"))
        .env("PYTHONPATH", &folder);
    check(&cluster, &mut client, program);
}

// needs: counterparts
#[test]
fn node_schedules_with_the_order() {
    let (cluster, mut client, folder) = shop();
    let packages = crate::counterparts::module("pg");
    symlink(packages.parent().unwrap(), folder.join("node_modules")).unwrap();
    // A module finds others from its own place.
    fs::copy(file("call_node.mjs"), folder.join("call_node.mjs")).unwrap();
    let page = block("docs/guides/node.md", "js");
    fs::write(folder.join("confirmation.mjs"), page).unwrap();
    let mut program = crate::counterparts::node();
    program.arg("call_node.mjs");
    check(&cluster, &mut client, program);
}

#[test]
fn rails_schedules_with_the_order() {
    let (cluster, mut client, folder) = shop();
    let page = block("docs/guides/rails.md", "ruby");
    fs::write(folder.join("confirmation.rb"), page).unwrap();
    let mut program = Command::new("ruby");
    program.arg(file("call_rails.rb"));
    check(&cluster, &mut client, program);
}
