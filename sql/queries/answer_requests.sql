SELECT CASE
    WHEN NOT EXISTS (SELECT FROM link_requests r WHERE r.id > (SELECT _scan_next_id('answers'))) OR EXISTS (SELECT FROM pauses)
    THEN 0
    ELSE mailroom_answer_requests(NULL::integer)
END
