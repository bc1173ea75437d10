import {DASHBOARD_PORT} from '../../client/connection/address.ts';
import {EVENT_KINDS} from '../../shared/domain/timeline.ts';
import {portFrom, positive, runId, since, tail, text} from '../terminal/arguments.ts';
import {type GleanerCommand, RUNNING_OR_STOPPED} from '../terminal/command.ts';

const FOLLOW = ['-f, --follow', 'print new lines until the end, or Ctrl-C'] as const;
const JSON_LINES = 'print one JSON object a line';

/** Registers `gleaner logs`, `gleaner events` and `gleaner dashboard`. */
export function addLogCommands(program: GleanerCommand): void {
  program
    .about('logs', 'print the log of a run, a TPU or a job')
    .argument('<name>', 'run id, TPU or job id', text)
    .option(...FOLLOW)
    .option('--tail <n>', 'last lines to print, or all', tail, 200)
    .option('--since <time>', 'only lines since this time: 10m, 2h, or 2026-01-02T03:04:05Z', since)
    .option('--incarnation <n>', 'earlier incarnation of a TPU, as `gleaner tpus status` lists it', positive)
    .alone('--run', 'the name is a run', ['tpu', 'job'])
    .alone('--tpu', 'the name is a TPU', ['run', 'job'])
    .alone('--job', 'the name is a job', ['run', 'tpu'])
    .onCloud(RUNNING_OR_STOPPED, JSON_LINES)
    .examples(
      'gleaner logs my-run -f',
      'gleaner logs tpu-us-central1-a-0 --tail all',
      'gleaner logs my-run --since 10m',
    )
    .action(async (name, options) => (await import('../logs/logs.ts')).logs(name, options));
  program
    .about('events', 'print the timeline of the deployment, or of one run')
    .argument('[run]', 'run id', runId)
    .option(...FOLLOW)
    .option('--tail <n>', 'last events to print, or all', tail, 100)
    .choice('--kind <kind>', 'only events of this kind', EVENT_KINDS)
    .onCloud(RUNNING_OR_STOPPED, JSON_LINES)
    .examples('gleaner events my-run -f', 'gleaner events --kind worker --tail 20')
    .action(async (run, options) => (await import('../events/events.ts')).events(run, options));
  program
    .about('dashboard', 'serve pages about runs, TPUs, jobs and events on this machine, until Ctrl-C')
    .option('--listen <port>', 'port of the pages; 0 is any free port', portFrom(0), DASHBOARD_PORT)
    .option('--open', 'open the page in a browser')
    .onCloud(RUNNING_OR_STOPPED)
    .examples('gleaner dashboard', 'gleaner dashboard --listen 9000 --open')
    .action(async options => (await import('../local/dashboard.ts')).dashboard(options));
}
