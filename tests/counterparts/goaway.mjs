// An HTTP/2 server on Node.js's own implementation that bows out of every connection while requests are under
// way: it takes the first half of those that are open, says with GOAWAY that it never looked at the others,
// as a server does that is deployed again, and closes.
//
//   node goaway.mjs KEY CERTIFICATE OPEN     prints "port N", "taken ID" and "ignored ID", by webhook-id
import { readFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';

const [key, cert, open] = process.argv.slice(2);
const server = createSecureServer({ key: readFileSync(key), cert: readFileSync(cert) });

server.on('session', (session) => {
  let streams = [];
  let leaving = false;
  // So that the last requests of all are answered too, when there are not enough to bow out on.
  let patience;

  const take = (taken) => {
    for (const stream of taken) {
      console.log(`taken ${stream.sentId}`);
      stream.respond({ ':status': 204 }, { endStream: true });
    }
  };
  session.on('error', () => {});
  session.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    stream.sentId = headers['webhook-id'];
    stream.resume();
    if (leaving) {
      console.log(`ignored ${stream.sentId}`);
      return;
    }
    streams.push(stream);
    clearTimeout(patience);
    if (streams.length < Number(open)) {
      patience = setTimeout(() => take(streams.splice(0)), 1000);
      return;
    }
    leaving = true;
    const taken = streams.splice(0, streams.length / 2);
    session.goaway(0, taken.at(-1).id);
    take(taken);
    for (const { sentId } of streams) {
      console.log(`ignored ${sentId}`);
    }
    setTimeout(() => session.destroy(), 5000);
  });
});
server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port}`));
