import {UsageError} from '../../client/text/errors.ts';
import {mapFields, type ValuesOf} from '../../shared/domain/records/field.ts';
import {runChanges} from '../../shared/domain/records/spec-keys.ts';
import {
  bytes,
  digest,
  folder,
  natural,
  naturals,
  positive,
  rate,
  runId,
  seconds,
  streamNumber,
  text,
  words,
  zone,
} from '../terminal/arguments.ts';
import {type GleanerCommand, RUNNING_OR_STOPPED} from '../terminal/command.ts';
import {requireChange} from '../terminal/field-options.ts';
import {addSpecOptions} from './spec-options.ts';

/** Registers `gleaner run …`. */
export function addRunGroup(program: GleanerCommand): void {
  const run = program.about('run', 'start, watch, change, check and compare runs');
  const about = (name: string, description: string) =>
    run.about(name, description).argument('<run>', 'run id', runId).onCloud();
  addSpecOptions(
    about('start', 'write run.json, drop the streams of a folder, and wait until they are accepted'),
  )
    .option('--streams <folder>', 'folder of streams, as `streams create` makes it', folder)
    .alone(
      '--from <run>',
      'take the spec of another run, and its streams where no folder is given',
      ['spec'],
      runId,
    )
    .option('--parallel <n>', 'streams that are uploaded at once', positive, 8)
    .option('--mirror', 'first copy models and SAEs of a hub to the bucket: no TPU needs the internet')
    .option('--watch', 'watch the run until it has ended')
    .noCheck()
    .dryRun()
    .examples(
      'gleaner run start my-run --streams streams --model Qwen/Qwen2.5-0.5B --layers 0-23 --budget-usd 50',
      'gleaner run start my-run --spec run.json --streams streams --watch',
      'gleaner run start my-run --layers 12 --sites resid_post,mlp_out --shard-size 500MB',
      'gleaner run start my-run-2 --from my-run --layers 0-23',
    )
    .action(async (id, options) => (await import('../run/start.ts')).start(id, options));
  about('watch', 'show TPUs, streams, cost and events of a run until it has ended')
    .option('--interval <s>', 'seconds between two updates', seconds, 2)
    .examples('gleaner run watch my-run', 'gleaner run watch my-run --interval 60')
    .action(async (id, options) => (await import('../run/watch/watch.ts')).watch(id, options));
  run
    .about('list', 'list the runs')
    .choice('--status <status>', 'runs with this status', STATUSES)
    .onCloud(RUNNING_OR_STOPPED)
    .examples('gleaner run list', 'gleaner run list --status failed --json')
    .action(async options => (await import('../run/status.ts')).status(undefined, options));
  addShortForms(run);
  addChanges(about);
  run
    .about('compare', 'compare two runs: specs, totals, costs, statistics and shards; exit 1 if they differ')
    .argument('<a>', 'run id', runId)
    .argument('<b>', 'run id', runId)
    .option('--html <file>', 'also write the comparison as one HTML file to mail', text)
    .onCloud(RUNNING_OR_STOPPED)
    .addHelpText('after', COMPARED)
    .examples(
      'gleaner run compare my-run my-other-run',
      'gleaner run compare my-run my-other-run --html compared.html',
    )
    .action(async (a, b, options) => (await import('../run/report.ts')).compareRuns(a, b, options));
  run
    .about('report', 'write a run as one HTML file to mail: its origin, course, content and checks')
    .argument('<run>', 'run id', runId)
    .option('-o, --output <file>', 'file to write (default: RUN-report.html)', text)
    .option('--verify', 'first read every stream and shard again, and write the verdict into the file')
    .onCloud(RUNNING_OR_STOPPED)
    .examples('gleaner run report my-run', 'gleaner run report my-run --verify -o report.html')
    .action(async (id, options) => (await import('../run/report.ts')).report(id, options));
  about('export', 'write layers of a run to files; a second call continues')
    .choice('--to <kind>', 'program or format that reads the files', EXPORTS, 'numpy')
    .option('--layer <n>', 'layer, needed for all but speculators and hub', natural)
    .option('--layers <n...>', 'for speculators, as it counts them (default: all that are stored)', naturals)
    .option('--ids <n...>', 'for features: their numbers (default: all)', naturals)
    .option('--site <site>', 'site or name of features, needed where the run has several', text)
    .choice('--dtype <dtype>', 'type of the numbers', ['float32', 'float16', 'bfloat16'], 'float32')
    .option('--context-size <n>', 'rows of a context of SAELens or delphi', positive, 128)
    .option('--window <n>', 'tokens of the text of a pair', positive, 64)
    .option('--tokenizer <where>', "for pairs: tokenizer.json or a model (default: the run's model)", text)
    .option('--repo <name>', 'for hub: dataset, such as me/my-run', text)
    .option('--public', 'for hub: create a dataset that everybody can read')
    .option('--output <folder>', 'folder that does not exist yet, needed for all but hub', folder)
    .examples(
      'gleaner run export my-run --layer 12 --output layer-12',
      'gleaner run export my-run --layer 12 --to saelens --output sae-12',
      'gleaner run export my-run --layer 12 --to pairs --window 32 --output pairs-12',
      'gleaner run export my-run --to speculators --output eagle',
      'gleaner run export my-run --to hub --repo me/my-run',
    )
    .action(async (id, options) => (await import('../run/export.ts')).exportRun(id, options));
}

const STATUSES = ['active', 'paused', 'completed', 'failed', 'stopped'];
const EXPORTS = 'numpy safetensors saelens dictionary_learning pairs speculators delphi features hub'.split(
  ' ',
);

const COMPARED = `
Exit code 0: both have the same samples, rejected samples, tokens and rows, and statistics within 0.1 %.
Exit code 1: one of these differs, or a run is not completed. Specs, costs and bytes of shards may differ.`;

type RunChange = Partial<ValuesOf<typeof runChanges>> & {if_version?: number};

function addChanges(about: (name: string, description: string) => GleanerCommand): void {
  about('pause', 'stop work on a run after its open shards; its TPUs are deleted')
    .examples('gleaner run pause my-run')
    .sends((run: string) => ({action: 'pause', run}));
  about('resume', 'continue a paused run')
    .examples('gleaner run resume my-run')
    .sends((run: string) => ({action: 'resume', run}));
  about('stop', 'end a run for good; stored shards stay')
    .yes()
    .dryRun()
    .examples('gleaner run stop my-run', 'gleaner run stop my-run --yes')
    .action(async (id, options) => (await import('../run/stop.ts')).stop(id, options));
  about('delete', 'delete a run that is over: its data set, its activations and its documents')
    .yes()
    .dryRun()
    .examples('gleaner run delete my-run', 'gleaner run delete my-run --yes --json')
    .action(async (id, options) => (await import('../run/delete.ts')).deleteRun(id, options));
  about('retry', 'try failed streams again')
    .option('--stream <number>', 'one stream, such as 007 (default: every failed stream)', streamNumber)
    .examples('gleaner run retry my-run', 'gleaner run retry my-run --stream 007')
    .sends((run: string, {stream}: {stream?: string}) => ({action: 'retry', run, stream}));
  about('cancel', 'take a stream out of its run, so that no TPU works on it until a retry')
    .option('--stream <number>', 'stream, such as 007', streamNumber)
    .examples('gleaner run cancel my-run --stream 007')
    .sends((run: string, {stream}: {stream?: string}) => {
      if (stream !== undefined) return {action: 'cancel', run, stream};
      throw new UsageError(
        `--stream is required, such as --stream 007: \`gleaner run stop ${run}\` ends the whole run for good, and \`gleaner run pause ${run}\` until a resume`,
      );
    });
  about('configure', 'change the priority or the budget of a run')
    .fields(runChanges, {hasTruth: true})
    .option('--if-version <n>', 'change only while the document has this version', natural)
    .examples('gleaner run configure my-run --budget-usd 20 --priority 5')
    .sends((run: string, {if_version, ...change}: RunChange) => {
      const settings = requireChange(mapFields(runChanges, (_, name) => change[name]));
      return {action: 'configure', run, ...settings, if_version};
    });
}

/** `status`, `verify` and `estimate` of the program, or of its group `run`. */
export function addShortForms(parent: GleanerCommand): void {
  const of = parent.parent ? `${parent.parent.name()} ${parent.name()}` : parent.name();
  parent
    .about('status', 'show every run, or one run with its streams, TPUs and latest events')
    .argument('[run]', 'run id', runId)
    .option('-w, --watch', 'keep the screen up to date until the run has ended')
    .option('--interval <s>', 'seconds between two updates, with --watch', seconds, 2)
    .onCloud(RUNNING_OR_STOPPED)
    .examples(`${of} status`, `${of} status my-run`, `${of} status my-run --watch`)
    .action(async (run, options) => {
      if (!options.watch) return (await import('../run/status.ts')).status(run, options);
      if (run === undefined) return parent.error('error: --watch needs the name of a run', {exitCode: 2});
      return (await import('../run/watch/watch.ts')).watch(run, options);
    });
  parent
    .about(
      'verify',
      'read the streams and every shard of a run, and count the samples that are stored exactly once',
    )
    .argument('<run>', 'run id', runId)
    .option('--digest <sha256>', 'digest that the run must have, instead of that in its manifest', digest)
    .option('--unanchored', 'accept a run whose manifest states no digest of it yet')
    .option(
      '--reference <n>',
      'also compute so many samples again with transformers in fp32, and write the drift of each layer into the manifest',
      positive,
    )
    .onCloud(RUNNING_OR_STOPPED)
    .changes(({reference}) => reference !== undefined)
    .examples(`${of} verify my-run`, `${of} verify my-run --reference 8`)
    .action(async (run, options) => (await import('../run/verify.ts')).verify(run, options));
  const estimate = parent.about(
    'estimate',
    'estimate the tokens, shards, bytes, time and dollars of a run from a sample of its streams',
  );
  addSpecOptions(
    estimate
      .argument(
        '<what>',
        'JSONL file, folder of streams, gs://BUCKET/datasets/RUN/, stream in a bucket, or run id',
      )
      .option('--accelerator <type>', "type of each TPU (default: the pool's, or v5litepod-1)")
      .option(
        '--zone <zone>',
        "zone of the TPUs, for their price (default: the pool's, or us-central1-a)",
        zone,
      )
      .option(
        '--region <region>',
        'region of the bucket, for network between regions (default: that of the zone)',
        text,
      )
      .option(
        '--workers <n>',
        'number of TPUs that work at once (default: those of the pool, or 1)',
        positive,
      )
      .option(
        '--sample-bytes <n>',
        'bytes of the sample; shorter streams are read as a whole',
        bytes,
        6_291_456,
      )
      .option('--compile', "compile the run's program for the type, to estimate its speed; takes a minute")
      .option('--tokens-per-second <n>', 'measured speed of one TPU, in place of the assumed speed', rate)
      .alone(
        '--like <run>',
        'earlier run on the same type of TPU; its speed, start time and upload rate are used',
        ['tokens_per_second'],
        runId,
      ),
  )
    .onCloud(RUNNING_OR_STOPPED)
    .examples(
      `${of} estimate streams --model Qwen/Qwen2.5-0.5B --layers 0-23`,
      `${of} estimate my-run --accelerator v6e-1 --zone us-east1-d`,
    )
    .action(async (what, options) => (await import('../run/estimate/estimate.ts')).estimate(what, options));
}

/** Registers `why`, the check of a program before a run, and the repair of documents. */
export function addRunCommands(program: GleanerCommand): void {
  program
    .about('why', 'say why a run, a stream, a job or a TPU waits: one reason, its evidence and the next step')
    .argument('<name>', 'run id, RUN/STREAM, job id or TPU', text)
    .alone('--run', 'the name is a run', ['tpu', 'job'])
    .alone('--tpu', 'the name is a TPU', ['run', 'job'])
    .alone('--job', 'the name is a job', ['run', 'tpu'])
    .onCloud(RUNNING_OR_STOPPED)
    .examples('gleaner why my-run', 'gleaner why my-run/007', 'gleaner why tpu-us-central1-a-0')
    .action(async (name, options) => (await import('../run/why.ts')).why(name, options));
  const preflight = program
    .about(
      'preflight',
      'compile the program of a run for TPUs, without a TPU: where it fits, its speed, and the cheapest type',
    )
    .option(
      '--accelerator <types>',
      'types of TPU, with commas between (default: of each generation the smallest that the program fits into)',
      words,
    )
    .option('--zone <zone>', 'zone of the TPUs, for their price', zone, 'us-central1-a');
  addSpecOptions(preflight)
    .onCloud(RUNNING_OR_STOPPED)
    .examples(
      'gleaner preflight --model meta-llama/Llama-3.3-70B-Instruct',
      'gleaner preflight --model google/gemma-2-27b --layers 20 --accelerator v5litepod-8,v6e-8 --json',
    )
    .action(async options => (await import('../run/estimate/preflight.ts')).preflight(options));
  program
    .about('rebuild', 'rebuild the documents of runs, streams and shards from the bucket; TPUs continue')
    .argument('[run]', 'run id (default: every run in the bucket)', runId)
    .dryRun('change nothing: list the differences from the bucket, and exit 1 where any exists')
    .onCloud('folder of a local cloud; a stopped cloud permits only --dry-run')
    .examples('gleaner rebuild --dry-run', 'gleaner rebuild my-run')
    .action(async (run, options) => (await import('../run/rebuild.ts')).rebuild(run, options));
  program
    .about('tick', 'ask for a tick now; or pause, resume or show the job that asks for one every minute')
    .oneOf('[action]', 'what to do', ['now', 'pause', 'resume', 'state'], 'now')
    .option('--location <region>', 'region of the Scheduler job (default: of the settings, or us-central1)')
    .onCloud('folder of a running local cloud')
    .changes(({0: action}) => action !== 'state')
    .dryRun()
    .examples('gleaner tick', 'gleaner tick state --location europe-west4')
    .action(async (action, options) => (await import('../pools/tick.ts')).tick(action, options));
}
