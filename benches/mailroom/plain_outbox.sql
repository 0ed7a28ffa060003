-- Where the plain statement puts its rows: the same columns, defaults, constraints and indexes.
CREATE TABLE plain_outbox (LIKE outbox INCLUDING ALL);
