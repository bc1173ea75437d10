import {readFileSync} from 'node:fs';

/** Ticks of the kernel in a second: every Linux of today has 100. */
const CLOCK_HZ = 100;

/** Processor seconds of a process so far: its own, and those of its children that have ended. None for a process that has ended. */
export function processTime(pid: number): {own: number; ended: number} {
  let stat = '';
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {}
  const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user = 0, system = 0, ended_user = 0, ended_system = 0] = ticks.slice(11, 15).map(Number);
  return {own: (user + system) / CLOCK_HZ, ended: (ended_user + ended_system) / CLOCK_HZ};
}
