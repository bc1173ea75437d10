import type {Command} from 'commander';
import {DEFAULT_DIR, DEFAULT_PORT} from '../local/defaults.ts';
import {dir, examples, json, natural, port, positive} from '../terminal/arguments.ts';

/** Registers the commands that start or change a cloud. */
export function addCloudCommands(program: Command): void {
  program
    .command('demo')
    .description('run the whole path on this machine: streams, workers, a preemption, verified shards')
    .option('--input <files...>', 'JSONL files with the samples (default: sample tasks)')
    .option('--model <folder>', 'model folder in the Hugging Face layout (default: a tiny random model)')
    .option('--streams <n>', 'number of streams that share the input', positive, 2)
    .option('--workers <n>', 'number of TPUs', positive, 2)
    .option('--preempt <n>', 'number of injected preemptions without notice', natural, 1)
    .addOption(dir('folder of all files (default: .gleaner/demo, emptied first)'))
    .addOption(port(0).default(0, 'any free port'))
    .option('--keep', 'keep the local cloud running until Ctrl-C')
    .addOption(json())
    .addHelpText(
      'after',
      examples('gleaner demo', 'gleaner demo --input my.jsonl --streams 4 --workers 2 --preempt 3'),
    )
    .action(async options => (await import('../demo/demo.ts')).demo(options));

  const local = program.command('local').description('a small Google Cloud on this machine');
  local
    .command('up')
    .description('start a local cloud and run it until Ctrl-C')
    .addOption(port(0).default(DEFAULT_PORT))
    .addOption(dir('folder of all files').default(DEFAULT_DIR))
    .option('--workers <n>', 'maximum number of TPUs in the pool', positive, 2)
    .option('--built', 'run the functions of `gleaner build` instead of their sources')
    .option('--emulators', "use Google's emulators of Firestore and Pub/Sub; needs gcloud and Java")
    .addOption(json())
    .addHelpText(
      'after',
      examples('gleaner local up', 'gleaner local up --port 9000 --dir /tmp/cloud --workers 4'),
    )
    .action(async options => (await import('../local/local.ts')).up(options));
  local
    .command('env')
    .description('print export lines that point gcloud and the Cloud Storage clients at the local cloud')
    .addOption(port())
    .addOption(dir('folder of the local cloud, in place of its port'))
    .addHelpText('after', examples('eval "$(gleaner local env)"'))
    .action(async options => (await import('../local/local.ts')).printEnvironment(options));
  local
    .command('fault')
    .description('inject a fault; `gleaner local fault help` lists the kinds')
    .argument('<kind>', 'preempt, vanish, dead, stockout, drop, double, reorder, clear …')
    .argument('[target]', 'TPU, queued resource, zone or kind of event', '')
    .addOption(port())
    .addOption(dir('folder of the local cloud, in place of its port'))
    .addHelpText(
      'after',
      examples(
        'gleaner local fault preempt tpu-us-central1-a-0',
        'gleaner local fault stockout us-central1-a',
        'gleaner local fault clear',
      ),
    )
    .action(async (kind, target, options) =>
      (await import('../local/local.ts')).fault(kind, target, options),
    );

  program
    .command('build')
    .description('build the functions and the worker bundle for Google Cloud into dist/')
    .addOption(json())
    .addHelpText('after', examples('gleaner build', 'gleaner build --json'))
    .action(async options => (await import('../build/build.ts')).build(options));

  program
    .command('deploy')
    .description(
      'build, plan, ask, and deploy to Google Cloud with Terraform; `terraform apply` works as well',
    )
    .argument('[settings]', 'JSON file of variables of terraform/ (default: gleaner.tfvars.json)')
    .option('--plan', 'change nothing: print the resources, and the most that an hour can cost')
    .option('--yes', 'apply without a question')
    .option(
      '--repeat-after <s>',
      'seconds before the repeat where Google has not finished an earlier step',
      natural,
      120,
    )
    .option('--state-bucket <bucket>', "bucket of Terraform's state (default: PROJECT-gleaner-terraform)")
    .addOption(json())
    .addHelpText(
      'after',
      examples('gleaner deploy --plan', 'gleaner deploy', 'gleaner deploy other.tfvars.json --yes'),
    )
    .action(async (settings, options) => (await import('../deploy/deploy.ts')).deploy(settings, options));
}
