-- What the demonstration that stays has sent: an activation, a recovery, an invoice from a template with a file, messages, one of
-- them for tomorrow and one to an address that is suppressed. The worker delivers it.
INSERT INTO templates (kind, locale, subject, body_text, body_html)
VALUES (
    'invoice', 'en', 'Your invoice {{ number }}',
    E'Dear {{ name }},\n\nyour invoice {{ number }} is attached.\n\n{% for line in lines %}{{ line.what }}: {{ line.price }}\n{% endfor %}\nTotal: {{ total }}\n',
    '<div style="max-width: 480px; font-family: sans-serif; color: #1c2733;">
<h1 style="font-size: 22px; color: #0b6e4f;">Invoice {{ number }}</h1>
<p>Dear {{ name }},</p>
<p>thank you for your order. Your invoice is attached.</p>
<table style="width: 100%; border-collapse: collapse;">
{% for line in lines %}<tr><td style="padding: 6px 0; border-bottom: 1px solid #dde3e8;">{{ line.what }}</td>
<td style="padding: 6px 0; border-bottom: 1px solid #dde3e8; text-align: right;">{{ line.price }}</td></tr>
{% endfor %}<tr><td style="padding: 6px 0;"><strong>Total</strong></td>
<td style="padding: 6px 0; text-align: right;"><strong>{{ total }}</strong></td></tr>
</table>
</div>'
);

INSERT INTO accounts (email, login, status) VALUES ('grace@example.com', 'grace', 'active');
INSERT INTO accounts (email, login) VALUES ('ada@example.com', 'ada');
SELECT mailroom_request_recovery('grace@example.com');

SELECT mailroom_send(
    'Grace Hopper <grace@example.com>', 'Your invoice 1043', kind => 'invoice', item_key => 'invoice-1043',
    data => '{
        "number": "1043", "name": "Grace", "total": "£15,020.00",
        "lines": [{"what": "Analytical Engine", "price": "£15,000.00"}, {"what": "Punched cards, 500", "price": "£20.00"}]
    }',
    attachments => jsonb_build_array(jsonb_build_object(
        'filename', 'invoice-1043.txt',
        'content', encode(convert_to(E'1 Analytical Engine: £15,000.00\n500 punched cards: £20.00\n', 'UTF8'), 'base64')
    ))
);
SELECT mailroom_send(
    'Dorothy Vaughan <dorothy@example.com>', 'Your order 7', E'Dear Dorothy,\n\nyour order 7 is on its way.\n', item_key => 'order-7',
    reply_to => 'Orders <orders@example.com>'
);
SELECT mailroom_send('carol@example.net', 'Your order 6', E'Dear Carol,\n\nyour order 6 is on its way.\n', transport => 'relay');

SELECT mailroom_suppress('alan@example.com');
SELECT mailroom_send('alan@example.com', 'News of this month', 'There is none.');
SELECT mailroom_send(
    'ada@example.com', 'Reminder', 'See you at noon.', send_at => now() + interval '1 day', item_key => 'noon'
);
