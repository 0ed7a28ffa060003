SELECT CASE
    WHEN NOT EXISTS (SELECT FROM link_requests) OR EXISTS (SELECT FROM pauses) THEN 0
    ELSE mailroom_answer_requests(NULL::integer)
END
