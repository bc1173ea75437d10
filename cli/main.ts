import {EventEmitter} from 'node:events';
import {runCommandLine} from './command-line.ts';

// Google's storage client adds listeners to a stream with each piece of an object, and Node would warn of them.
EventEmitter.defaultMaxListeners = 0;

// A reader such as `head` may end before the output does. The code is that of a process that SIGPIPE ended.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit(141);
  });

// `gleaner.mjs` holds the other end of the channel where it runs on an older Node. A command ends with it, also after a `kill -9`.
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
process.channel?.unref();

export const ended = runCommandLine(process.argv.slice(2));
