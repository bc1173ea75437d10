import {CAUSES} from '../../shared/domain/records/causes.ts';
import {
  dollars,
  folder,
  instant,
  integer,
  natural,
  pair,
  poolName,
  positive,
  seconds,
  text,
  texts,
} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';
import {addSourceOptions} from './source-options.ts';

const JOB = 'id of the job, or its --name if no other job has it';
const STATUSES = ['pending', 'scheduled', 'running', 'completed', 'failed', 'cancelled'];

/** Registers `gleaner jobs …`. */
export function addJobCommands(program: GleanerCommand): void {
  const jobs = program.about('jobs', 'run programs on the TPUs of a pool');
  const about = (name: string, description: string) =>
    jobs.about(name, description).argument('<job>', JOB, text);
  addSubmit(jobs);
  about('show', 'show one job: state, attempts with cause and cost, and its result')
    .onCloud()
    .examples('gleaner jobs show my-job', 'gleaner jobs show my-job --json')
    .action(async (id, options) => (await import('../jobs/queue.ts')).show(id, options));
  jobs
    .about('list', 'list the newest jobs')
    .choice('--status <status>', 'only jobs in this state', STATUSES)
    .option('--pool <pool>', 'only jobs of this pool', poolName)
    .option('--name <name>', 'only jobs with this name', text)
    .option('--limit <n>', 'most jobs to list', positive, 10)
    .onCloud()
    .examples('gleaner jobs list', 'gleaner jobs list --name my-run --status failed')
    .action(async options => (await import('../jobs/queue.ts')).list(options));
  about('follow', 'print the output of a job while it runs; exit 0 when it completed, and 1 otherwise')
    .namesCloud()
    .examples('gleaner jobs follow my-job')
    .action(async (id, options) => (await import('../jobs/follow.ts')).follow(id, options));
  about('logs', 'print the stored output of an attempt')
    .option('--attempt <n>', 'number of the attempt, as `jobs show` lists it (default: the newest)', positive)
    .option('--host <n>', 'number of the host, where the job has several (default: 0)', natural)
    .namesCloud()
    .examples('gleaner jobs logs my-job', 'gleaner jobs logs my-job --attempt 2 --host 1')
    .action(async (id, options) => (await import('../jobs/follow.ts')).logs(id, options));
  about('get', 'print the result of a completed job, and nothing else')
    .onCloud()
    .examples('gleaner jobs get my-job > result.txt', 'gleaner jobs get my-job --json')
    .action(async (id, options) => (await import('../jobs/result.ts')).get(id, options));
  about('cp', 'download the artifacts of a job; a second call continues')
    .argument('<folder>', 'folder for the files', folder)
    .option('--attempt <n>', 'number of the attempt, as `jobs show` lists it (default: the newest)', positive)
    .onCloud()
    .examples('gleaner jobs cp my-job artifacts')
    .action(async (id, into, options) => (await import('../jobs/copy.ts')).copy(id, into, options));
  about('cancel', 'end a job, waiting or running')
    .onCloud()
    .dryRun()
    .examples('gleaner jobs cancel my-job')
    .action(async (id, options) => (await import('../jobs/queue.ts')).sendAbout('cancel', id, options));
  jobs
    .about('retry', 'run an ended job again, or every job that failed for a cause')
    .argument('[job]', JOB, text)
    .option('--where <cause=CAUSE>', `jobs that failed for a cause: ${CAUSES.join(', ')}`, pair)
    .option('--fresh', 'begin with an empty checkpoint')
    .onCloud()
    .dryRun()
    .examples('gleaner jobs retry my-job', 'gleaner jobs retry --where cause=memory')
    .action(async (id, options) => (await import('../jobs/queue.ts')).retry(id, options));
  jobs
    .about('clear', 'delete the documents of ended jobs; their output stays in the bucket')
    .onCloud()
    .yes()
    .dryRun()
    .examples('gleaner jobs clear', 'gleaner jobs clear --yes')
    .action(async options => (await import('../jobs/queue.ts')).clear(options));
}

function addSubmit(jobs: GleanerCommand): void {
  const submit = jobs
    .about('submit', 'run a Python file, or a command, on a worker of a pool')
    .argument('[file...]', 'Python file, .json file of fields, or - for standard input; -- its arguments')
    .option('--test [challenge]', 'run the test of the TPU in place of a file', integer)
    .option('--command', 'run the words after -- in place of a file')
    .option('--timeout <time>', 'most time of an attempt, such as 90s, 15m or 2h (default: 300 s)', seconds)
    .option('--pool <pool>', "pool (default: the deployment's own)", poolName)
    .option('--slices <n>', 'TPUs of one zone that run the job together (default: 1)', integer)
    .option('--priority <n>', 'higher comes first (default: 0)', integer)
    .option('--max-retries <n>', 'further attempts after failures of the job itself (default: 0)', integer)
    .option('--name <text>', 'name of the job for other commands, stored as metadata', text)
    .option('--env <name[=value]>', 'variable of the job, by default with your value; may be repeated', texts)
    .option('--secret <name=secret>', 'variable with a secret of job_secrets; may be repeated', pairs)
    .option('--input <input>', 'run:NAME or a folder of the bucket to read; may be repeated', texts)
    .option('--metadata <key=value>', 'text to store with the job; may be repeated', pairs)
    .option('--challenge-number <n>', 'number that the code finds as challenge_number', integer)
    .option('--deadline <time>', 'latest end, such as 2026-01-02T03:04:05Z', instant)
    .option('--budget-usd <usd>', 'most dollars that the job may cost', dollars);
  addSourceOptions(submit)
    .option('--follow', 'print the output while the job runs')
    .option('--test-restart', 'run twice, on a fresh TPU the second time, and compare the results')
    .noCheck()
    .onCloud()
    .dryRun()
    .wordsAfterDashes('options of the code or the command go after --, such as -- --steps 3')
    .examples(
      'gleaner jobs submit train.py --timeout 2h --follow -- --steps 10',
      'gleaner jobs submit --bundle . --command -- python -m my_package --steps 10',
    )
    .action(async (files, options) => (await import('../jobs/submit.ts')).submit(files, options));
}

function pairs(given: string, before: [string, string][] = []): [string, string][] {
  return [...before, pair(given)];
}
