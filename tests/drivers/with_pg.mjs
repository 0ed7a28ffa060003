// Makes calls with node-postgres, as a program of Node.js would: CALLS on the input, what came of them on the output.
//
//     with_pg.mjs PACKAGE SOCKET DATABASE

import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

const [home, host, database] = process.argv.slice(2);
const pg = createRequire(`${home}/`)(home);

function plain(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  if ("json" in value) return JSON.stringify(value.json);
  if ("time" in value) return new Date(value.time);
  if ("uuid" in value) return value.uuid;
  return Buffer.from(value.bytes, "hex");
}

const client = new pg.Client({ host, database, user: "postgres" });
await client.connect();
const results = [];
for (const { sql, parameters } of JSON.parse(await text(process.stdin))) {
  try {
    const { rows } = await client.query({ text: sql, values: parameters.map(plain), rowMode: "array" });
    results.push(rows.length === 0 ? null : rows[0][0]);
  } catch (error) {
    results.push(`${error.code} ${error.message}`);
  }
}
await client.end();
process.stdout.write(JSON.stringify(results));
