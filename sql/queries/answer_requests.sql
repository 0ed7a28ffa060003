SELECT CASE WHEN EXISTS (SELECT FROM pauses) THEN 0 ELSE mailroom_answer_requests(NULL::integer) END
