// graphile-worker's own worker, one job at a time, behind the protocol of bench.worker; PGHOST etc. say where.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/");
const { Logger, runMigrations, runOnce } = require("graphile-worker");
const { Pool } = require("pg");

const pgPool = new Pool({ max: 4 });
const options = { pgPool, concurrency: 1, noHandleSignals: true, taskList: { noop: async () => {} }, logger: new Logger(() => () => {}) };
await runMigrations(options);

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  await pgPool.query("SELECT graphile_worker.add_job('noop', '{\"path\": \"/\"}') FROM generate_series(1, $1::int)", [Number(line.value)]);
  console.log("armed");
  await lines.next();
  const began = process.hrtime.bigint(), cpu = process.cpuUsage();
  await runOnce(options);
  const used = process.cpuUsage(cpu);
  console.log(JSON.stringify({ cpu: used.user + used.system, seconds: Number(process.hrtime.bigint() - began) / 1e9 }));
}
await pgPool.end();
