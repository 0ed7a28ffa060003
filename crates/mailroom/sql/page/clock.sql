-- The time of the transaction in the time zone of the session, and the name of that zone.
SELECT to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS now, current_setting('TimeZone') AS zone
