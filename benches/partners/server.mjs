// The provider's server of the benches: Node.js's own HTTP server. It reads each POST to its end and answers 200.
//
//   server.mjs                    counts the requests
//   server.mjs --times            notes as well when it had read each mail, by the number in "Hello 17"
//   server.mjs --capture f n      writes the first n requests to f as they came, each after a line with its length
//
// GET /taken returns how many requests there were, GET /times the times noted since the last GET /times, in nanoseconds
// of the clock that a program in another process reads as CLOCK_MONOTONIC.
import { openSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';

const [mode, file, count] = process.argv.slice(2);
const capture = mode === '--capture' ? openSync(file, 'w') : null;
let uncaptured = capture === null ? 0 : Number(count);
let taken = 0;
let times = {};

const note = (request, body) => {
  if (mode === '--times') times[/Hello (\d+)/.exec(body)[1]] = Number(process.hrtime.bigint());
  if (uncaptured > 0) {
    uncaptured -= 1;
    let text = `${request.method} ${request.url} HTTP/1.1\r\n`;
    for (let i = 0; i < request.rawHeaders.length; i += 2) {
      text += `${request.rawHeaders[i]}: ${request.rawHeaders[i + 1]}\r\n`;
    }
    text += `\r\n${body}`;
    writeSync(capture, `${Buffer.byteLength(text)}\n${text}\n`);
  }
};

const tell = (url) => {
  if (url !== '/times') return String(taken);
  const noted = JSON.stringify(times);
  times = {};
  return noted;
};

const server = createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    if (request.method === 'GET') {
      response.end(tell(request.url));
      return;
    }
    taken += 1;
    if (mode === '--times' || uncaptured > 0) note(request, Buffer.concat(parts).toString());
    response.end();
  });
});
// No connection is closed while a bench does something else.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port}`));
