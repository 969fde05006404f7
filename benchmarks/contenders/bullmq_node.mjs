// BullMQ on Node: defaults, but as many jobs at a time as the others, ended jobs removed, and its lock and
// stalled check of one lease. Speaks what `protocol.py` describes.
import { Queue, Worker } from "bullmq";
import { createInterface } from "node:readline";

const setup = JSON.parse(process.argv[2]);
const { hostname, port } = new URL(setup.url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const queue = new Queue(setup.name, { connection });
const record = { ends: 0, first_start: 0, last_end: 0, starts: [] };
const clock = () => (performance.timeOrigin + performance.now()) / 1000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cpu = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e6; };

const tasks = {
  async noop() {
    if (!record.ends) record.first_start = clock();
    record.ends += 1;
    record.last_end = clock();
  },
  async io() {
    if (!record.ends) record.first_start ||= clock();
    await sleep(5);
    record.ends += 1;
    record.last_end = clock();
  },
  async mark(value) { record.starts.push([value, clock()]); record.ends += 1; },
  async hold(value) { record.starts.push([value, clock()]); await sleep(3600e3); },
  async pad() { record.ends += 1; },
};

function options(when) {
  let delay = 0;
  if (when.after !== undefined) delay = Math.trunc(when.after * 1000);
  else if (when.at !== undefined) delay = Math.max(0, when.at - Date.now());
  return { delay, removeOnComplete: true, removeOnFail: true };
}

function jobsOf({ task, count, when = {}, bytes = 100 }) {
  const jobs = [];
  for (let n = 0; n < count; n++) {
    const at = when.at === undefined ? undefined : when.at + Math.trunc(n * (when.every ?? 0));
    const value = task === "pad" ? "x".repeat(bytes) : task === "mark" && at !== undefined ? at : n;
    jobs.push([value, at === undefined ? when : { at }]);
  }
  return jobs;
}

async function enqueue(request) {
  const { task, how } = request, jobs = jobsOf(request);
  const used = cpu(), begun = performance.now();
  if (how === "bulk") {
    for (let at = 0; at < jobs.length; at += 1000) {
      const page = jobs.slice(at, at + 1000);
      await queue.addBulk(page.map(([value, when]) => ({ name: task, data: { value }, opts: options(when) })));
    }
  } else if (how === "awaiters") {
    const rest = jobs.values();
    const some = async () => { for (const [value, when] of rest) await queue.add(task, { value }, options(when)); };
    await Promise.all(Array.from({ length: 100 }, some));
  } else {
    for (let [value, when] of jobs) {
      if (task === "mark" && !request.when) value = Math.trunc(clock() * 1e6);
      await queue.add(task, { value }, options(when));
      if (request.pause) await sleep(request.pause * 1000);
    }
  }
  return { seconds: (performance.now() - begun) / 1000, cpu_s: cpu() - used };
}

let worker;
const answers = {
  enqueue,
  async work() {
    const lease = setup.lease_s * 1000;
    worker = new Worker(setup.name, (job) => tasks[job.name](job.data.value), {
      connection, concurrency: setup.concurrency, lockDuration: lease, stalledInterval: lease,
    });
    await worker.waitUntilReady();
    return {};
  },
  async report() {
    const { ends, first_start, last_end } = record;
    return { ends, first_start, last_end, cpu_s: cpu(), rss_kb: Math.trunc(process.memoryUsage().rss / 1024) };
  },
  async starts() { const { starts } = record; record.starts = []; return { starts }; },
  async forget() { Object.assign(record, { ends: 0, first_start: 0, last_end: 0, starts: [] }); return {}; },
};

await queue.waitUntilReady();
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.do === "stop") break;
  let answer;
  try { answer = await answers[request.do](request); } catch (error) { answer = { error: String(error) }; }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
process.exit(0);
