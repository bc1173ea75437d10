/** Commands about the subject of a page, for a person to copy: a page changes nothing itself. */
import {quoted} from '../../client/text/output.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {type Section, section} from '../html/feed.ts';
import {command, type Html, html} from '../html/html.ts';

type Line = readonly [purpose: string, command: string];

function commandList(lines: readonly Line[]): Html {
  return html`<dl class="facts">${lines.map(([purpose, line]) => html`<dt>${purpose}</dt><dd>${command(line)}</dd>`)}</dl>`;
}

function commandSection(lines: readonly Line[]): Section {
  return section('commands', html`<h2>Commands</h2>${commandList(lines)}`);
}

const OPEN: Partial<Record<Run['status'], string>> = {active: 'pause', paused: 'resume'};

/** `exporting`: the command that writes a layer to files. */
export function runCommands({run, status, streams_failed, total_shards}: Run, exporting?: string): Section {
  const turn = OPEN[status];
  const lines: Line[] = turn
    ? [
        [turn === 'pause' ? 'Pause it' : 'Continue it', `gleaner run ${turn} ${run}`],
        ['Change its budget', `gleaner run configure ${run} --budget-usd 20`],
        ['End it for good', `gleaner run stop ${run}`],
      ]
    : [];
  if (streams_failed > 0) lines.push(['Try its failed streams again', `gleaner run retry ${run}`]);
  lines.push(['Read its logs', `gleaner logs ${run} --run`]);
  if (total_shards > 0)
    lines.push(
      ['Check each stored sample', `gleaner run verify ${run}`],
      ['Write a report to mail', `gleaner run report ${run} --verify`],
    );
  if (status === 'completed' && exporting) lines.push(['Write one layer to files', exporting]);
  return commandSection(lines);
}

export function tpuCommands({name, phase}: Pick<Worker, 'name' | 'phase'>): Section {
  const living: Line[] =
    phase === 'gone'
      ? []
      : [
          ['Run a command on its hosts', `gleaner exec ${name} -- uname -a`],
          ['Delete it', `gleaner tpus delete ${name}`],
        ];
  return commandSection([
    ['Follow its log', `gleaner logs ${name} -f`],
    ...living,
    ['Create it again', `gleaner tpus recreate ${name}`],
  ]);
}

const ENDED = ['completed', 'failed', 'cancelled'];

export function jobCommands(id: string, status: string): Section {
  return commandSection([
    ['Read its output', `gleaner jobs logs ${id}`],
    ENDED.includes(status)
      ? ['Run it again', `gleaner jobs retry ${id}`]
      : ['End it', `gleaner jobs cancel ${id}`],
  ]);
}

/** The commands of a pool are hidden at first, because a page may have many pools. */
export function poolCommands(pool: string, limiter: Pool['limiter'] | undefined): Html {
  const name = quoted(pool);
  const turn = limiter && limiter.state !== 'open' ? 'resume' : 'pause';
  return html`<details><summary>Commands</summary>${commandList([
    ['Change its size', `gleaner scale ${name} --workers-per-zone 4`],
    [turn === 'pause' ? 'Create no TPU' : 'Create TPUs again', `gleaner pool ${turn} ${name}`],
    ['Keep TPUs without work', `gleaner pool keep ${name} --minutes 30`],
  ])}</details>`;
}
