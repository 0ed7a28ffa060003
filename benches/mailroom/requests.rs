//! Whether the time of a request tells if there is such an account.
//!
//! The worker is at work, as in production, and answers meanwhile. The limited accounts were served just before.

use crate::alike::{self, Kind};
use crate::ground;
use crate::plan::Effort;
use crate::table::Row;

/// Accounts of each kind.
const ACCOUNTS: usize = 5_000;

/// The rows of requests. The function is long because the steps of the measurement share its variables.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers();
    let mut client = ground::create_database(&cluster, "requests", &[]);
    for (domain, status) in [
        ("known", "active"),
        ("limited", "active"),
        ("suspended", "suspended"),
        ("inactive", "provisioned"),
    ] {
        client
            .batch_execute(&format!(
                "INSERT INTO accounts (email, login, status) \
                 SELECT i || '@{domain}.example.com', '{domain}' || i, '{status}' \
                 FROM generate_series(0, {}) i",
                ACCOUNTS - 1
            ))
            .unwrap();
    }
    client
        .batch_execute(
            "INSERT INTO tokens (account, action) \
             SELECT id, 'password_recovery' FROM accounts WHERE login LIKE 'limited%'",
        )
        .unwrap();
    ground::wait_until_drained(&mut client);
    ground::vacuum(&mut client);

    let mut rows = Vec::new();
    for action in ["recovery", "activation"] {
        let caller = std::cell::RefCell::new(cluster.connect("requests"));
        let statement = caller
            .borrow_mut()
            .prepare(&format!("SELECT mailroom_request_{action}($1)"))
            .unwrap();
        // Plans are made and caches filled.
        for i in 0..200 {
            let address = format!("{i}@warmup.example.com");
            caller
                .borrow_mut()
                .execute(&statement, &[&address])
                .unwrap();
        }
        let mut kinds: Vec<Kind<'_>> = ["unknown", "known", "limited", "suspended", "inactive"]
            .into_iter()
            .map(|name| {
                let (caller, statement) = (&caller, &statement);
                Kind {
                    name,
                    call: Box::new(move |number| {
                        // All addresses of a number are of about one length.
                        let address = format!("{}@{name}.example.com", number % ACCOUNTS);
                        caller.borrow_mut().execute(statement, &[&address]).unwrap();
                    }),
                }
            })
            .collect();
        let subject = format!("request_{action}");
        rows.extend(alike::compare(
            &subject,
            effort.of(None, Some(100)),
            &mut kinds,
        ));
    }
    rows
}
