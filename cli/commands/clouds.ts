import {DEFAULT_DIR, DEFAULT_PORT} from '../../client/connection/address.ts';
import {
  digestStart,
  dollars,
  folder,
  modelName,
  natural,
  portFrom,
  positive,
  text,
} from '../terminal/arguments.ts';
import {type GleanerCommand, RUNNING_OR_STOPPED} from '../terminal/command.ts';

/** Registers the commands that start or change a cloud. */
export function addCloudCommands(program: GleanerCommand): void {
  addDemo(program);
  addLocal(program);
  program
    .about('build', 'build the functions and the worker bundle for Google Cloud into dist/')
    .option('--environment', 'also build the worker environment where it is missing; takes minutes')
    .json()
    .examples('gleaner build', 'gleaner build --environment')
    .action(async options => (await import('../build/build.ts')).build(options));
  program
    .about(
      'deploy',
      'build, plan, ask, and deploy to Google Cloud with Terraform; `terraform apply` works as well',
    )
    .argument('[settings]', 'JSON file of variables of terraform/ (default: gleaner.tfvars.json)')
    .option('--plan', 'change nothing: print the resources, and the most that an hour can cost')
    .yes()
    .option(
      '--artifacts <sha256>',
      'go back: functions and worker bundle of an earlier deployment',
      digestStart,
    )
    .option('--state-bucket <bucket>', "bucket of Terraform's state (default: PROJECT-gleaner-terraform)")
    .cloud()
    .changes(({plan}) => plan !== true)
    .json()
    .examples('gleaner deploy --plan', 'gleaner deploy', 'gleaner deploy other.tfvars.json --yes')
    .action(async (settings, options) => (await import('../deploy/deploy.ts')).deploy(settings, options));
  program
    .about('destroy', 'drain every pool, wait until no TPU is left, and destroy the deployment; data stays')
    .argument('[settings]', 'JSON file of variables of a deployment on Google Cloud')
    .option('--state-bucket <bucket>', "bucket of Terraform's state (default: PROJECT-gleaner-terraform)")
    .yes()
    .dryRun('change nothing: print what goes and what stays')
    .onCloud()
    .examples('gleaner destroy --dry-run', 'gleaner destroy', 'gleaner destroy other.tfvars.json --yes')
    .action(async (settings, options) => (await import('../destroy/destroy.ts')).destroy(settings, options));
  program
    .about('smoke', 'try a deployment in ten steps, from its rights to a verified run, within a budget')
    .option('--budget-usd <usd>', 'most dollars that the test may spend', dollars, 5)
    .option('--model <model>', "model of the runs (default: the deployment's own)", modelName)
    .option('--state-bucket <bucket>', "bucket of Terraform's state (default: PROJECT-gleaner-terraform)")
    .option(
      '--state-file <file>',
      'file of the state, from which the test continues',
      text,
      'gleaner-smoke.json',
    )
    .yes()
    .onCloud()
    .changes()
    .examples('gleaner smoke --cloud my-project-123 --budget-usd 5', 'gleaner smoke --json')
    .action(async options => (await import('../smoke/smoke.ts')).smoke(options));
  program
    .about('doctor', 'compare the deployment with its cloud, and name the command that mends each difference')
    .option('--state-bucket <bucket>', "bucket of Terraform's state (default: PROJECT-gleaner-terraform)")
    .onCloud()
    .examples('gleaner doctor', 'gleaner doctor --json')
    .action(async options => (await import('../doctor/doctor.ts')).doctor(options));
}

function addDemo(program: GleanerCommand): void {
  program
    .about('demo', 'run the whole path on this machine: streams, workers, a preemption, verified shards')
    .option('--input <files...>', 'JSONL files with the samples (default: sample tasks)')
    .option('--model <folder>', 'model folder in the Hugging Face layout (default: a tiny random model)')
    .option('--streams <n>', 'number of streams that share the input', positive, 2)
    .option('--workers <n>', 'number of TPUs', positive, 2)
    .option('--preempt <n>', 'number of injected preemptions without notice', natural, 1)
    .dir('folder of all files (default: .gleaner/demo, emptied first)')
    .option('--port <port>', 'port of the local cloud; 0 is any free port', portFrom(0), 0)
    .option('--keep', 'keep the local cloud running until Ctrl-C')
    .option('--open', 'open the pages in a browser, and keep them until Ctrl-C')
    .json()
    .examples(
      'gleaner demo',
      'gleaner demo --open',
      'gleaner demo --input my.jsonl --streams 4 --workers 2 --preempt 3',
    )
    .action(async options => (await import('../demo/demo.ts')).demo(options));
}

function addLocal(program: GleanerCommand): void {
  const local = program.about('local', 'run a small Google Cloud on this machine');
  local
    .about('up', 'start a local cloud and run it until Ctrl-C')
    .option('--port <port>', 'port of the local cloud', portFrom(0), DEFAULT_PORT)
    .option('--dir <folder>', 'folder of all files', folder, DEFAULT_DIR)
    .option('--workers <n>', 'TPUs of the pool at first; `gleaner scale` changes it', positive, 2)
    .option(
      '--git-token-secret <setting>',
      'HOST=SECRET: a host of private repositories, and the secret with its token',
    )
    .option('--job-secrets <setting>', 'NAME=SECRET,…: the secrets that jobs may name')
    .option('--notify <setting>', 'receiver of notifications: URL or slack=URL')
    .option('--adopt', 'take over a folder that came from elsewhere; its startup scripts run as you')
    .option('--built', 'run the functions of `gleaner build` instead of their sources')
    .option('--emulators', "use Google's emulators of Firestore and Pub/Sub; needs gcloud and Java")
    .json()
    .examples('gleaner local up', 'gleaner local up --port 9000 --dir /tmp/cloud --workers 4')
    .action(async options => (await import('../local/up.ts')).up(options));
  local
    .about('env', 'print export lines that point gcloud and the Cloud Storage clients at the local cloud')
    .namesCloud('folder of the local cloud, in place of its port')
    .examples('eval "$(gleaner local env)"')
    .action(async options => (await import('../local/running.ts')).printEnvironment(options));
  local
    .about('fault', 'make the local cloud fail on purpose; `gleaner local fault help` lists the kinds')
    .argument('<kind>', 'preempt, vanish, dead, stockout, drop, double, reorder, clear …')
    .argument('[target]', 'TPU, queued resource, zone or kind of event', '')
    .option('--at-work', 'wait until the TPU, or any, is at work')
    .namesCloud('folder of the local cloud, in place of its port')
    .changes(({0: kind}) => kind !== 'help')
    .examples('gleaner local fault preempt --at-work', 'gleaner local fault preempt tpu-us-central1-a-0')
    .action(async (kind, target, options) =>
      (await import('../local/running.ts')).fault(kind, target, options),
    );
}

/** Registers `gleaner cloud` and `gleaner config`. */
export function addSettingsCommands(program: GleanerCommand): void {
  const cloud = program.about('cloud', 'list the clouds that commands talk to, and choose one for a folder');
  cloud
    .about('list', 'list the clouds of this machine and the chosen projects; * marks that of this folder')
    .json()
    .examples('gleaner cloud list', 'gleaner cloud list --json')
    .action(async options => (await import('../config/clouds.ts')).list(options));
  cloud
    .about('use', 'use a cloud in this folder and in those below it')
    .argument('<name>', 'PROJECT, PROJECT/DEPLOYMENT, the folder of a local cloud, or local', text)
    .json()
    .examples('gleaner cloud use my-project-123', 'gleaner cloud use local')
    .action(async (name, options) => (await import('../config/clouds.ts')).use(name, options));
  cloud
    .about('forget', 'forget a cloud: folders that use it propose theirs again')
    .argument('<name>', 'cloud, as `gleaner cloud list` names it', text)
    .json()
    .examples('gleaner cloud forget my-project-123/gleaner')
    .action(async (name, options) => (await import('../config/clouds.ts')).forgetCloud(name, options));
  const config = program.about('config', 'show the settings of the commands');
  config
    .about(
      'show',
      'show which cloud, bucket and documents the commands use, and the settings of changed pools',
    )
    .option('--show-origin', 'show where each value comes from: an option, a variable, a file or a default')
    .onCloud(RUNNING_OR_STOPPED)
    .examples('gleaner config show --show-origin', 'gleaner config show --json')
    .action(async options => (await import('../config/show.ts')).showConfig(options));
}

/** Registers the completion of shells. `others` builds a program of all other commands. */
export function addCompletionCommands(program: GleanerCommand, others: () => GleanerCommand): void {
  program
    .about('completion', 'print the completion script of a shell')
    .oneOf('<shell>', 'shell', ['bash', 'zsh', 'fish'])
    .examples(
      'source <(gleaner completion bash)    # in ~/.bashrc, with the package bash-completion',
      'source <(gleaner completion zsh)     # in ~/.zshrc, after compinit',
      'gleaner completion fish | source     # in ~/.config/fish/config.fish',
    )
    .action(async shell => (await import('@bomb.sh/tab')).default.setup('gleaner', 'gleaner', shell));
  program
    .command('complete', {hidden: true})
    .description('print the words that may come next; completion scripts call it')
    .argument('[words...]', 'words of the command line, after --')
    .action(async words => {
      const {default: tab} = await import('@bomb.sh/tab/commander');
      tab(others(), {completionCommandName: 'completion'}).parse(words);
    });
}
