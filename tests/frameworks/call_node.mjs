// Calls the function of docs/guides/node.md, which is in confirmation.mjs of the working directory. Input and output are
// those of call_django.py.

import pg from "pg";
import { text } from "node:stream/consumers";
import { MailRefused, placeOrder } from "./confirmation.mjs";

const pool = new pg.Pool({ host: process.argv[2], database: "app", user: "web", max: 1 });
const results = [];
for (const [customer, address, invoice] of JSON.parse(await text(process.stdin))) {
  try {
    results.push(`order ${await placeOrder(pool, customer, address, Buffer.from(invoice, "hex"))}`);
  } catch (error) {
    results.push(error instanceof MailRefused ? `refused ${error.message}` : `failed ${error.code}`);
  }
}
await pool.end();
console.log(JSON.stringify(results));
