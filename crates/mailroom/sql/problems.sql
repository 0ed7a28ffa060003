SELECT p.severity = 'critical', concat_ws(' ', p.severity || ':', p.detail, p.hint)
FROM mailroom_problems() p
