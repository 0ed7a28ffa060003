// Reads the mails in the files of a directory with mailparser, and prints what they say as JSON.

import { readFile, readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [module, directory] = process.argv.slice(2);
const { simpleParser } = createRequire(import.meta.url)(module);
// What is made of one body by the other is left out.
const options = { skipHtmlToText: true, skipTextToHtml: true, skipImageLinks: true, skipTextLinks: true };

const addresses = (header) => (header?.value ?? []).map(({ name, address }) => [name, address]);

async function read(file) {
    const mail = await simpleParser(await readFile(join(directory, file)), options);
    const header = (name) => mail.headers.get(name) ?? null;
    const text = (value) => (typeof value === 'string' ? value : null);
    return {
        delivered_to: addresses(header('delivered-to')).map(([, address]) => address),
        received: null,
        message_id: mail.messageId,
        id: header('x-mailroom-message-id'),
        from: addresses(mail.from),
        to: addresses(mail.to),
        cc: addresses(mail.cc),
        bcc: addresses(mail.bcc),
        reply_to: addresses(mail.replyTo),
        subject: mail.subject ?? '',
        text: text(mail.text),
        html: text(mail.html),
        auto_submitted: header('auto-submitted'),
        // It decodes no header that it does not know, and shows the other in parts.
        x_order: null,
        list_unsubscribe: null,
        files: mail.attachments.map(({ filename, contentType, cid, content }) => ({
            filename, name: null, content_type: contentType, content_id: cid ?? null, content: content.toString('hex'),
        })),
        tree: null,
        defects: [],
    };
}

const mails = [];
for (const file of (await readdir(directory)).sort()) {
    mails.push(await read(file));
}
process.stdout.write(JSON.stringify(mails));
