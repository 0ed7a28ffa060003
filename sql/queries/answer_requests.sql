SELECT CASE
    WHEN NOT EXISTS (SELECT FROM requests r WHERE r.id > _requests_from()) OR EXISTS (SELECT FROM pauses) THEN 0
    ELSE mailroom_answer_requests(NULL::integer)
END
