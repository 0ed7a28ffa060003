-- The mail of a shop on a working day: what it sent, what waits, what failed, and what providers reported.

INSERT INTO templates (kind, locale, subject, body_text, body_html) VALUES
    ('order_confirmation', 'en', 'Thank you for order {{ order or "1043" }}',
     E'Hello {{ name or "Ann" }},\n\nthank you for your order {{ order or "1043" }}. We will tell you when it is on its way.\n\nhttps://shop.example/orders/{{ order or "1043" }}\n',
     '<html style="color-scheme:light dark"><body style="margin:0;font:16px/1.5 system-ui,sans-serif"><div style="max-width:36em;margin:0 auto;padding:24px"><h1 style="font-size:22px">Thank you, {{ name or "Ann" }}</h1><p>Your order {{ order or "1043" }} is being packed. We will tell you when it is on its way.</p><p><a href="https://shop.example/orders/{{ order or "1043" }}">See your order</a></p></div></body>'),
    ('order_confirmation', 'de', 'Danke für Ihre Bestellung {{ order or "1043" }}',
     E'Guten Tag {{ name or "Ann" }},\n\ndanke für Ihre Bestellung {{ order or "1043" }}.\n',
     '<html style="color-scheme:light dark"><body style="margin:0;font:16px/1.5 system-ui,sans-serif"><div style="max-width:36em;margin:0 auto;padding:24px"><h1 style="font-size:22px">Danke, {{ name or "Ann" }}</h1><p>Ihre Bestellung {{ order or "1043" }} wird gepackt.</p></div></body>'),
    ('appointment_reminder', 'en', 'See you on {{ day }}', 'Dear {{ name }}, we expect you on {{ day }}.', NULL);

SELECT _publish_transports('mailroom send/mx1.shop.example/6b0c22813dcc', '[
    {"name": "smtp", "provider": "smtp"},
    {"name": "ses", "provider": "ses"},
    {"name": "crm", "provider": "webhook"}
]');
UPDATE transports SET since = now() - interval '3 days 4 hours';
UPDATE transports SET since = now() - interval '5 hours' WHERE name = 'ses';

-- Each with the minutes since it was scheduled; what ended did so seconds later.
INSERT INTO outbox (created_at, send_at, updated_at, ended_at, state, transport, kind, recipients, subject, item_key, group_key,
                    body_text, body_html, failed_attempts, last_error, provider_id, enqueued_by)
SELECT t.at, t.at, t.at, t.at + make_interval(secs => 1.2 + n % 7), 'sent', t.transport, t.kind, ARRAY[t.recipient], t.subject,
    t.item_key, NULL, E'Hello,\n\n' || t.subject || E'.\n\nYour shop\n',
    CASE t.transport WHEN 'ses' THEN NULL ELSE
    '<html style="color-scheme:light dark"><body style="margin:0;font:16px/1.5 system-ui,sans-serif"><div style="max-width:36em;margin:0 auto;padding:24px"><h1 style="font-size:22px">'
        || t.subject || '</h1><p>Thank you for shopping with us. Your papers are ready whenever you need them.</p>'
        || '<table style="width:100%;border-collapse:collapse"><tr><td style="padding:6px 0">Tea pot, white</td><td align="right">34.00 €</td></tr>'
        || '<tr><td style="padding:6px 0">Two cups</td><td align="right">18.00 €</td></tr>'
        || '<tr style="border-top:1px solid #888"><td style="padding:6px 0"><b>Total</b></td><td align="right"><b>52.00 €</b></td></tr></table>'
        || '<p><a href="https://shop.example/orders/10' || n || '?utm_source=mail">See your order</a></p></div></body>' END,
    0, NULL, '<20261129.' || n || '@mx1.shop.example>', 'shop_web'
FROM (VALUES
    (1, 340, 'smtp', 'invoice', 'bert@example.net', 'Your invoice 1031', 'invoice-1031'),
    (2, 290, 'ses', 'newsletter', 'carla@example.org', 'Winter tea has arrived', NULL),
    (3, 220, 'smtp', 'order_confirmation', 'dora@example.com', 'Thank you for order 1038', 'order-1038'),
    (4, 180, 'smtp', 'invoice', 'dora@example.com', 'Your invoice 1038', 'invoice-1038'),
    (5, 95, 'smtp', 'shipping_notice', '"Emil Zátopek" <emil@example.cz>', 'Order 1029 is on its way', 'ship-1029'),
    (6, 61, 'smtp', 'order_confirmation', 'ann@example.com', 'Thank you for order 1043', 'order-1043'),
    (7, 44, 'crm', 'crm_event', 'crm@shop.example', 'customer.updated', NULL),
    (8, 21, 'smtp', 'order_confirmation', 'frank@example.com', 'Thank you for order 1044', 'order-1044'),
    (9, 12, 'smtp', 'invoice', 'ann@example.com', 'Your invoice 1043', 'invoice-1043'),
    (10, 4, 'smtp', 'order_confirmation', 'grete@example.de', 'Thank you for order 1045', 'order-1045')
) v (n, minutes, transport, kind, recipient, subject, item_key)
CROSS JOIN LATERAL (SELECT now() - make_interval(mins => v.minutes) AS at, v.transport, v.kind, v.recipient, v.subject, v.item_key) t
ORDER BY n;

-- Failed.
INSERT INTO outbox (created_at, send_at, updated_at, ended_at, state, transport, kind, recipients, subject, item_key, body_text,
                    failed_attempts, last_error, claimed_by, claimed_at, enqueued_by)
SELECT t.at, t.at, t.at, t.at + interval '2 seconds', 'error', 'smtp', 'shipping_notice', ARRAY['guest' || i || '@oldmail.example'],
    'Order ' || 900 + i || ' is on its way', 'ship-' || 900 + i, 'Your parcel is on its way.', 1, '550 5.1.1 mailbox unavailable',
    'mailroom send/mx1.shop.example/6b0c22813dcc', t.at, 'shop_web'
FROM generate_series(1, 6) i
CROSS JOIN LATERAL (SELECT now() - make_interval(mins => 35 + i) AS at) t;
INSERT INTO outbox (created_at, send_at, updated_at, ended_at, state, transport, kind, recipients, subject, body_html, failed_attempts,
                    last_error, claimed_by, claimed_at, enqueued_by)
VALUES (now() - interval '28 minutes', now() - interval '28 minutes', now(), now() - interval '27 minutes', 'error', 'ses', 'newsletter',
    '{henri@example.fr}', 'Winter tea has arrived', '<h1>Winter tea has arrived</h1>', 2, 'no answer within 30 s',
    'mailroom send/mx1.shop.example/6b0c22813dcc', now() - interval '28 minutes', 'shop_web');
-- Of each state that is left.
INSERT INTO outbox (created_at, send_at, ended_at, state, transport, kind, recipients, subject, body_text, last_error, enqueued_by) VALUES
    (now() - interval '3 hours', now() - interval '3 hours', now() - interval '170 minutes', 'cancelled', 'smtp', 'appointment_reminder',
     '{ida@example.com}', 'See you on Friday', 'Dear Ida, we expect you on Friday.', NULL, 'shop_web'),
    (now() - interval '4 hours', now() - interval '4 hours', now() - interval '3 hours', 'expired', 'smtp', 'one_time_offer',
     '{jan@example.nl}', 'Only today', 'Only today: free delivery.', 'expired before it was sent', 'shop_web'),
    (now() - interval '5 hours', now() - interval '5 hours', now() - interval '5 hours', 'suppressed', 'ses', 'newsletter',
     '{karl@bounces.example}', 'Winter tea has arrived', 'Winter tea has arrived.', 'karl@bounces.example: bounced', 'shop_web');
INSERT INTO outbox (created_at, send_at, state, transport, kind, recipients, subject, data, claimed_by, claimed_at, claimed_until, enqueued_by)
VALUES (now() - interval '3 seconds', now() - interval '3 seconds', 'claimed', 'smtp', 'order_confirmation', '{lisa@example.com}', NULL,
    '{"name": "Lisa", "order": "1046", "locale": "en"}', 'mailroom send/mx1.shop.example/6b0c22813dcc', now() - interval '1 second',
    now() + interval '1 hour', 'shop_web');
INSERT INTO outbox (created_at, send_at, transport, kind, recipients, cc, subject, item_key, body_text, data, enqueued_by) VALUES
    (now() - interval '2 hours', now() + interval '20 hours', 'smtp', 'appointment_reminder', '{ann@example.com}', '{}', 'See you on Friday',
     'reminder-ann', 'Dear Ann, we expect you on Friday.', '{"day": "Friday", "name": "Ann"}', 'shop_web'),
    (now() - interval '1 hour', now() + interval '3 days', 'smtp', 'appointment_reminder', '{max.mustermann@example.de}',
     '{office@example.de}', 'See you on Tuesday', 'reminder-max', 'Dear Max, we expect you on Tuesday.', '{}', 'shop_web');

-- In the order in which they were scheduled.
UPDATE outbox o
SET id = n.id
FROM (SELECT i.id AS before, 48200 + row_number() OVER (ORDER BY i.created_at, i.id) AS id FROM outbox i) n
WHERE o.id = n.before;
SELECT setval('outbox_id_seq', max(id)) FROM outbox;

INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error)
SELECT o.id, o.failed_attempts, CASE o.transport WHEN 'ses' THEN 'ambiguous' ELSE 'failed' END::attempt_outcome, o.ended_at - interval '1.4 seconds',
    o.ended_at, o.claimed_by, o.transport, CASE o.transport WHEN 'smtp' THEN 550 END, o.last_error
FROM outbox o
WHERE o.state = 'error';
INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error)
SELECT o.id, 1, 'failed', o.created_at, o.created_at + interval '0.3 seconds', o.claimed_by, o.transport, 503, 'try later'
FROM outbox o
WHERE o.transport = 'ses' AND o.state = 'error';

INSERT INTO delivery_events (event_key, outbox_id, transport, type, recipient, status, detail, occurred_at)
SELECT gen_random_uuid(), o.id, o.transport, 'delivered', mailroom_address_key(o.recipients[1]), '250', 'queued as 4C2F',
    o.ended_at + interval '3 seconds'
FROM outbox o
WHERE o.subject IN ('Thank you for order 1043', 'Your invoice 1043', 'Your invoice 1038');
INSERT INTO delivery_events (event_key, outbox_id, transport, type, is_permanent, reason, recipient, status, detail, occurred_at)
SELECT gen_random_uuid(), o.id, o.transport, 'bounced', true, 'bounced', mailroom_address_key(o.recipients[1]), '5.1.1',
    'mailbox unavailable', o.ended_at + interval '9 seconds'
FROM outbox o
WHERE o.subject = 'Your invoice 1031';

INSERT INTO suppressions (address, list, reason, bounces, since, until) VALUES
    ('karl@bounces.example', '', 'bounced', 2, now() - interval '2 days', now() + interval '28 days'),
    ('lena@example.com', '', 'complained', 0, now() - interval '9 days', NULL),
    ('mo@example.com', 'newsletter', 'unsubscribed', 0, now() - interval '20 days', NULL),
    ('bot@example.com', '', 'manual', 0, now() - interval '40 days', now() - interval '1 day');
INSERT INTO operator_actions (at, role, action, outbox_id, detail) VALUES
    (now() - interval '26 hours', 'ops', 'paused', NULL, '{}'),
    (now() - interval '25 hours', 'ops', 'resumed', NULL, '{}'),
    (now() - interval '170 minutes', 'maria', 'cancelled', (SELECT id FROM outbox WHERE state = 'cancelled'), '{}');
ANALYZE;
