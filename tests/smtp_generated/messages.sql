-- Schedules a thousand messages of all kinds, always the same ones, and notes which were refused, and why.
--
-- Message n has in its body the control character number n mod 33 (0 for none, 32 for DEL), so that each comes up
-- some thirty times; every fortieth has it in its subject too.

CREATE TABLE refused (n integer, reason text);

CREATE FUNCTION pick(list text[]) RETURNS text LANGUAGE sql
RETURN list[1 + floor(random() * cardinality(list))::integer];

CREATE FUNCTION words(count integer) RETURNS text LANGUAGE sql
AS $$
    SELECT string_agg(pick(ARRAY[
        'Grüße', 'naïve', 'Straße', 'Žluťoučký kůň', 'Привет, мир', 'Καλημέρα', 'مرحبا بالعالم', 'שלום עולם', 'नमस्ते दुनिया',
        'สวัสดีชาวโลก', '你好，世界', 'こんにちは', '안녕하세요', 'Xin chào', 'ሰላም', 'გამარჯობა', 'Բարեւ', 'வணக்கம்',
        '😀', '👩‍👩‍👧‍👦', '🇩🇪', '👋🏽', E'e\u0301', E'\u202Eabc\u202C', E'\u00A0', E'\u200B', E'\uFEFF', '𝔘𝔫𝔦', '￿',
        'plain', 'words', 'a', '=?utf-8?q?x?=', '=?', '?=', '{{n}}', '{% x %}', '"quoted"', '<b>&amp;</b>', '\', 'a, b; c: d',
        '=3D', '=', '(comment)', '%s', '$1', '''', '--', '.', '..', 'From', 'https://example.com/?a=1&b=2', repeat('x', 90)
    ]), pick(ARRAY[' ', ' ', ' ', ' ', '  ', '', E'\t'])) FROM generate_series(1, count)
$$;

CREATE FUNCTION line() RETURNS text LANGUAGE sql
AS $$
    SELECT CASE floor(random() * 16)::integer
        WHEN 0 THEN ''
        WHEN 1 THEN '.'
        WHEN 2 THEN repeat('.', 1 + floor(random() * 80)::integer)
        WHEN 3 THEN '.' || words(2)
        WHEN 4 THEN repeat(pick(ARRAY['x', 'ü', '😀', '. ', '=']), 900 + floor(random() * 2000)::integer)
        WHEN 5 THEN words(2) || pick(ARRAY[' ', '   ', E'\t'])
        WHEN 6 THEN 'From ' || words(1)
        WHEN 7 THEN pick(ARRAY['--', '-- ', '>', '>From ', E'\t', ' '])
        WHEN 8 THEN words(60)
        ELSE words(1 + floor(random() * 9)::integer)
    END
$$;

CREATE FUNCTION body(control text) RETURNS text LANGUAGE sql
AS $$
    SELECT string_agg(line() || CASE WHEN random() < 0.5 THEN control ELSE '' END, pick(ARRAY[E'\n', E'\n', E'\r\n', E'\r', E'\n\r']))
        || control || pick(ARRAY['', E'\n', E'\r\n', E'\r', '.'])
    FROM generate_series(1, 1 + floor(random() * 12)::integer)
$$;

-- Those beyond ASCII fit into one encoded word: Python 3.11 shows a space between two of a name.
CREATE FUNCTION named(address text) RETURNS text LANGUAGE sql
AS $$
    SELECT format('"%s" <%s>', replace(replace(name, '\', '\\'), '"', '\"'), address)
    FROM pick(ARRAY[
        'Ann Lee', 'Lee, Ann', 'Ann "A" Lee', 'Zoë Müller', '田中 太郎', 'Ann M. Lee', 'ann@example.com', repeat('Ü', 18), '=?utf-8?q?x?=',
        'O''Brien; (x) <y>', '👩‍👩‍👧‍👦', 'a\b', 'Привет, мир', repeat('word ', 24) || 'end'
    ]) name
$$;

CREATE FUNCTION addresses(n integer, count integer) RETURNS text LANGUAGE sql
AS $$
    SELECT string_agg(CASE WHEN random() < 0.4 THEN named(a.address) ELSE a.address END, ', ')
    FROM (SELECT format('%s-%s-%s@%s',
        pick(ARRAY['ada', 'o''brien', 'a.b+c', '{x}', '!#$%&*/=?^_`|~', repeat('long', 12)]), n, i,
        pick(ARRAY['example.com', 'example.com', 'sub.example.net', 'bücher.example', '例え.example'])) AS address
    FROM generate_series(1, count) i) a
$$;

-- Up to five; the HTML, if there is any, shows some images. (Text that is shown is part of the text for mailparser.)
CREATE FUNCTION files(n integer, has_html boolean) RETURNS jsonb LANGUAGE sql
AS $$
    SELECT jsonb_agg(jsonb_build_object(
        'filename', f.name,
        'content', encode(convert_to(CASE f.i WHEN 1 THEN body('') ELSE repeat(md5(n::text || f.i), floor(random() * 90)::integer) END || 'x', 'UTF8'), 'base64'),
        'content_id', CASE WHEN has_html AND f.name LIKE '%.png' THEN format('id%s', f.i) || CASE f.i WHEN 4 THEN '@example.com' ELSE '' END END
    ))
    FROM (
        SELECT i, pick(ARRAY[
            'bill.pdf', 'Größe 1.pdf', '日本語のとても長い名前の請求書.txt', 'a"b.txt', 'semi;colon, and comma.csv', repeat('ü', 60) || '.png',
            '%41.txt', 'it''s.ics', 'Привет мир.docx', '👩‍👩‍👧‍👦.png', 'a b.png', repeat('long ', 40) || '.zip', 'a=b.html'
        ]) AS name
        FROM generate_series(1, 1 + n / 3 % 5) i
        OFFSET 0
    ) f
$$;

DO $$
DECLARE
    control text;
    text_body text;
    html text;
    subject text;
    recipients text;
    reason text;
BEGIN
    PERFORM setseed(0.19);
    FOR n IN 1..1000 LOOP
        control := CASE n % 33 WHEN 0 THEN '' WHEN 32 THEN chr(127) ELSE chr(n % 33) END;
        text_body := body(control);
        html := '<p title="' || n || '">' || body(control) || '</p>';
        subject := translate(left(words(1 + n % 12), 200), E'\t', ' ') || CASE WHEN n % 40 = 0 THEN control ELSE '' END;
        recipients := addresses(n, CASE WHEN n % 50 = 0 THEN 48 ELSE 1 + n % 3 END);
        IF n % 25 = 0 THEN
            recipients := recipients || format(', jörg-%s@example.com, %s@bücher.example', n, pick(ARRAY['田中', 'δοκιμή', 'münchen']));
        END IF;
        BEGIN
            PERFORM mailroom_send(
                recipients,
                subject,
                CASE WHEN n % 10 = 8 THEN NULL WHEN n % 100 = 9 THEN '' ELSE text_body END,
                CASE WHEN n % 10 IN (0, 4, 8) THEN html END,
                cc => CASE WHEN n % 7 = 0 AND n % 50 <> 0 THEN addresses(n + 10000, 2) END,
                bcc => CASE WHEN n % 11 = 0 AND n % 50 <> 0 THEN addresses(n + 20000, 1) END,
                reply_to => CASE WHEN n % 6 = 0 THEN addresses(n + 30000, 1 + n % 10) END,
                from_address => CASE WHEN n % 8 = 0 THEN named('orders@bücher.example') END,
                headers => CASE WHEN n % 9 = 0 THEN jsonb_build_object(
                    'X-Order', trim(translate(left(words(1 + n % 9), 120), E'\t', ' ')) || n, 'List-Id', '<news.example.com>'
                ) END,
                unsubscribe_url => CASE WHEN n % 13 = 0 THEN 'https://example.com/u?t=' || repeat('a', n % 700) END,
                attachments => CASE WHEN n % 3 = 0 THEN files(n, n % 10 IN (0, 4, 8)) END,
                transport => 'relay',
                item_key => n::text
            );
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
            INSERT INTO refused VALUES (n, coalesce(nullif(reason, ''), sqlerrm));
        END;
    END LOOP;
END
$$;
