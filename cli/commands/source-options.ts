import {folder, orNone, positive, text} from '../terminal/arguments.ts';
import type {GleanerCommand} from '../terminal/command.ts';

/** Options that name the code of a job or a pool, and its environment. */
export function addSourceOptions(command: GleanerCommand): GleanerCommand {
  return command
    .alone(
      '--bundle <folder>',
      'folder of code, packed and stored in the bucket',
      ['repo', 'branch', 'pr', 'commit'],
      folder,
    )
    .option(
      '--repo <url>',
      'https address of a git repository, or none for no code of your own',
      orNone(text),
    )
    .alone('--branch <branch>', 'newest commit of a branch', ['pr', 'commit'], text)
    .alone('--pr <n>', 'newest commit of a pull request', ['commit'], positive)
    .option('--commit <sha>', 'commit, 40 hexadecimal digits', text)
    .option('--jax-version <version>', 'newest, nightly or X.Y.Z; none for the locked one', orNone(text))
    .option('--setup-script <file>', 'shell script that runs once on each host, or none', orNone(text))
    .option(
      '--config <file>',
      'file of this machine for code, at the path $JOB_CONFIG, or none',
      orNone(text),
    )
    .option('--ramfs-dir <folder>', 'folder in memory, such as /mnt/ramfs, or none', orNone(text));
}
