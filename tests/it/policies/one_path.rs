//! I10: every row comes, changes and goes by a statement, so that defaults, policies and triggers that the application
//! adds see it.

use super::People;
use crate::cluster::number;

/// Numbers for rows, by a default; the rows that triggers saw come or change, and not go; and the numbers that policies
/// let in and that triggers saw come.
const OBSERVERS: &str = "CREATE SEQUENCE numbers; \
     GRANT USAGE ON SEQUENCE numbers TO PUBLIC; \
     CREATE TABLE mirror (number bigint PRIMARY KEY, content jsonb); \
     CREATE TABLE let_in (number bigint); \
     CREATE TABLE came (number bigint, relation name); \
     CREATE FUNCTION mirror() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public SET timezone = 'UTC' AS $$ \
     BEGIN \
         IF TG_OP <> 'INSERT' THEN DELETE FROM mirror WHERE number = OLD.number; END IF; \
         IF TG_OP <> 'DELETE' THEN INSERT INTO mirror VALUES (NEW.number, to_jsonb(NEW)); END IF; \
         IF TG_OP = 'INSERT' THEN INSERT INTO came VALUES (NEW.number, TG_TABLE_NAME); END IF; \
         RETURN NULL; \
     END $$; \
     CREATE FUNCTION lets_in(number bigint) RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = public AS $$ \
         INSERT INTO let_in VALUES (number) RETURNING true \
     $$";

/// The tables that get rows in [`People::day`], among others.
const WRITTEN: [&str; 9] = [
    "accounts",
    "attached",
    "job_runs",
    "link_requests",
    "outbox",
    "outbox_attempts",
    "pauses",
    "pending",
    "tokens",
];

#[test]
fn i10_defaults_policies_and_triggers_of_the_application_see_every_row() {
    let mut people = People::start();
    people.post.client.batch_execute(OBSERVERS).unwrap();
    let tables = people.tables();
    for table in &tables {
        people
            .post
            .client
            .batch_execute(&format!(
                "ALTER TABLE {table} ADD COLUMN number bigint NOT NULL DEFAULT nextval('public.numbers'); \
                 ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; \
                 CREATE POLICY lets_in ON {table} AS RESTRICTIVE FOR INSERT WITH CHECK (public.lets_in(number)); \
                 CREATE TRIGGER mirror AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION mirror(); \
                 SET timezone = 'UTC'; \
                 INSERT INTO mirror SELECT number, to_jsonb(t) FROM {table} t"
            ))
            .unwrap();
    }
    people.day("ann");

    let came: Vec<String> = people
        .post
        .client
        .query("SELECT DISTINCT relation::text FROM came ORDER BY 1", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    for table in WRITTEN {
        assert!(came.iter().any(|name| name == table), "{table}: {came:?}");
    }
    let unchecked = "SELECT count(*) FROM came WHERE number NOT IN (SELECT number FROM let_in)";
    assert_eq!(number(&mut people.post.client, unchecked), 0);
    let rows: Vec<String> = tables
        .iter()
        .map(|table| format!("SELECT number, to_jsonb(t) FROM {table} t"))
        .collect();
    let rows = rows.join(" UNION ALL ");
    for difference in [
        format!("({rows}) EXCEPT SELECT * FROM mirror"),
        format!("SELECT * FROM mirror EXCEPT ({rows})"),
    ] {
        let query = format!("SELECT count(*) FROM ({difference}) d");
        assert_eq!(number(&mut people.post.client, &query), 0, "{query}");
    }
}
