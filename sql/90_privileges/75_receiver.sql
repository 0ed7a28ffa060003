-- mailroom_receiver: reports what providers told about mail, and unsubscribes.
--
-- For a program that listens on the internet: it reads nothing. What it reports with an id of an event is believed, else what a
-- recipient of the mail could say.

GRANT EXECUTE ON FUNCTION @extschema@.mailroom_report(text, jsonb), @extschema@.mailroom_unsubscribe(text), @extschema@._library_version(), @extschema@.mailroom_version()
    TO mailroom_receiver;
