// graphile-worker with two tasks: `store` inserts a row, `deliver` POSTs its payload by undici.
//
//   graphile.mjs <folder with the packages> <connection string> <endpoint>
//
// Everything is left at its default but the number of jobs at a time, and the log, which would cost it a line a job.
import { createRequire } from 'node:module';

const [folder, connectionString, endpoint] = process.argv.slice(2);
const packages = createRequire(`${folder}/`);
const { Logger, run } = packages('graphile-worker');
const { Agent, request } = packages('undici');

const dispatcher = new Agent({ connections: 64 });

const taskList = {
  store: async ({ n }, { withPgClient }) => {
    const insert = { name: 'store', text: 'INSERT INTO stored (n) VALUES ($1)', values: [n] };
    await withPgClient((client) => client.query(insert));
  },
  deliver: async (mail) => {
    const { statusCode, body } = await request(endpoint, {
      method: 'POST',
      dispatcher,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(mail),
    });
    await body.dump();
    if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  },
};

await run({
  connectionString,
  concurrency: 10,
  noHandleSignals: true,
  logger: new Logger(() => () => {}),
  taskList,
});
console.log('graphile-worker is ready');
