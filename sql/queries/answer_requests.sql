SELECT CASE
    WHEN NOT EXISTS (SELECT FROM requests) OR EXISTS (SELECT FROM pauses) THEN 0
    ELSE mailroom_answer_requests(NULL::integer)
END
