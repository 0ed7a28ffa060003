-- What a sender leaves behind: every mail sent.
UPDATE outbox
SET state = 'sent', data = data - '{token,code,link}'::text[], updated_at = now(), ended_at = now()
WHERE state = 'scheduled'
