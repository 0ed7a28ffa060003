//! The differences of an older version that a sample of an upgrade script undoes.

/// One difference of an older version.
pub(super) struct Change {
    /// The statement that turns the current version into the older one.
    pub(super) age: &'static str,
    /// The statements of the upgrade script that undo it, in order. `{kind name}` stands for what a new installation
    /// says of that object.
    pub(super) mend: &'static [&'static str],
}

pub(super) const CHANGES: &[Change] = &[
    Change {
        age: "CREATE TABLE @extschema@.left_over (id bigint)",
        mend: &["DROP TABLE @extschema@.left_over"],
    },
    Change {
        age: "DROP VIEW @extschema@.mailroom_attached",
        mend: &[
            "CREATE VIEW @extschema@.mailroom_attached AS {view mailroom_attached}",
            "SELECT @extschema@._close(ARRAY['@extschema@.mailroom_attached'::regclass::oid])",
            "COMMENT ON VIEW @extschema@.mailroom_attached IS {comment mailroom_attached}",
            "GRANT SELECT ON @extschema@.mailroom_attached TO mailroom_admin",
        ],
    },
    Change {
        age: "ALTER TABLE @extschema@.pauses DROP COLUMN paused_by",
        mend: &[
            "ALTER TABLE @extschema@.pauses ADD COLUMN paused_by name NOT NULL DEFAULT session_user",
            "COMMENT ON COLUMN @extschema@.pauses.paused_by IS 'The user who paused it; mailroom_collector if the worker paused itself because the database is a copy.'",
        ],
    },
    Change {
        age: "ALTER TABLE @extschema@.job_runs ALTER COLUMN collected DROP DEFAULT",
        mend: &["ALTER TABLE @extschema@.job_runs ALTER COLUMN collected SET DEFAULT 0"],
    },
    Change {
        age: "ALTER TABLE @extschema@.job_runs ALTER COLUMN duration DROP NOT NULL",
        mend: &["ALTER TABLE @extschema@.job_runs ALTER COLUMN duration SET NOT NULL"],
    },
    Change {
        age: "ALTER TABLE @extschema@.accounts SET (fillfactor = 20)",
        mend: &["ALTER TABLE @extschema@.accounts SET (fillfactor = 80)"],
    },
    Change {
        age: "ALTER TABLE @extschema@.templates ENABLE ROW LEVEL SECURITY",
        mend: &["ALTER TABLE @extschema@.templates DISABLE ROW LEVEL SECURITY"],
    },
    Change {
        age: "DROP INDEX @extschema@.outbox_attempts_outbox_id",
        mend: &["{index outbox_attempts_outbox_id}"],
    },
    Change {
        age: "ALTER TABLE @extschema@.job_runs DROP CONSTRAINT job_runs_counts_must_not_be_negative",
        mend: &[
            "ALTER TABLE @extschema@.job_runs ADD CONSTRAINT job_runs_counts_must_not_be_negative {constraint job_runs_counts_must_not_be_negative}",
        ],
    },
    Change {
        age: "ALTER DOMAIN @extschema@._kind DROP CONSTRAINT outbox_kind_must_not_be_empty",
        mend: &[
            "ALTER DOMAIN @extschema@._kind ADD CONSTRAINT outbox_kind_must_not_be_empty {constraint outbox_kind_must_not_be_empty}",
        ],
    },
    Change {
        age: "DROP TRIGGER budgets_changed ON @extschema@.budgets",
        mend: &["{trigger budgets_changed}"],
    },
    Change {
        age: "ALTER TABLE @extschema@.link_requests DISABLE TRIGGER link_requests_note_restore",
        mend: &["ALTER TABLE @extschema@.link_requests ENABLE TRIGGER link_requests_note_restore"],
    },
    Change {
        age: "CREATE OR REPLACE FUNCTION @extschema@._tokens_keep_id() RETURNS trigger LANGUAGE plpgsql \
              SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NEW; END'",
        mend: &["{function _tokens_keep_id()}"],
    },
    Change {
        age: "ALTER FUNCTION @extschema@.mailroom_pause() RESET search_path",
        mend: &[
            "ALTER FUNCTION @extschema@.mailroom_pause() SET search_path = pg_catalog, pg_temp",
        ],
    },
    Change {
        age: "DROP FUNCTION @extschema@.mailroom_dequeue_line(integer)",
        mend: &[
            "{function mailroom_dequeue_line(integer)}",
            "COMMENT ON FUNCTION @extschema@.mailroom_dequeue_line(integer) IS {comment mailroom_dequeue_line(integer)}",
            "SELECT @extschema@._close(ARRAY['@extschema@.mailroom_dequeue_line(integer)'::regprocedure::oid])",
            "GRANT EXECUTE ON FUNCTION @extschema@.mailroom_dequeue_line(integer) TO mailroom_collector",
        ],
    },
    Change {
        age: "ALTER FUNCTION @extschema@.mailroom_peek(text) OWNER TO pg_monitor",
        mend: &[
            "ALTER FUNCTION @extschema@.mailroom_peek(text) OWNER TO {owner mailroom_peek(text)}",
        ],
    },
    Change {
        age: "CREATE OR REPLACE VIEW @extschema@._token_ages AS SELECT t.id, t.created_at AS asked_at FROM @extschema@.tokens t WHERE t.id > 0",
        mend: &["CREATE OR REPLACE VIEW @extschema@._token_ages AS {view _token_ages}"],
    },
    Change {
        age: "ALTER SEQUENCE @extschema@.outbox_attempts_id_seq CACHE 20",
        mend: &["ALTER SEQUENCE @extschema@.outbox_attempts_id_seq CACHE 1"],
    },
    Change {
        age: "GRANT SELECT ON @extschema@.pauses TO mailroom_app",
        mend: &["REVOKE SELECT ON @extschema@.pauses FROM mailroom_app"],
    },
    Change {
        age: "REVOKE SELECT (status) ON @extschema@.accounts FROM mailroom_app",
        mend: &["GRANT SELECT (status) ON @extschema@.accounts TO mailroom_app"],
    },
    Change {
        age: "REVOKE USAGE ON SCHEMA @extschema@ FROM mailroom_app",
        mend: &["GRANT USAGE ON SCHEMA @extschema@ TO mailroom_app"],
    },
    Change {
        age: "COMMENT ON TABLE @extschema@.pauses IS 'Old'",
        mend: &["COMMENT ON TABLE @extschema@.pauses IS {comment pauses}"],
    },
    Change {
        age: "SELECT pg_extension_config_dump('@extschema@.templates', 'WHERE false')",
        mend: &["SELECT pg_extension_config_dump('@extschema@.templates', '')"],
    },
];
