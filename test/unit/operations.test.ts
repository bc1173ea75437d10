/** docs/operations.md explains every alert and every status word of the product. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {costLines, mostAnHour} from '../../cli/deploy/cost.ts';
import {CHECKS} from '../../cli/doctor/doctor.ts';
import {STEPS} from '../../cli/smoke/steps.ts';
import {quotaIdsOf} from '../../shared/domain/fleet/accelerators.ts';
import {CONSTRAINT_KINDS} from '../../shared/domain/records/constraint.ts';
import {execDocument, execHostDocument} from '../../shared/domain/records/exec.ts';
import {jobDocument} from '../../shared/domain/records/job.ts';
import {runDocument} from '../../shared/domain/records/run.ts';
import {streamDocument} from '../../shared/domain/records/stream.ts';
import {workerDocument} from '../../shared/domain/records/worker.ts';
import {ROOT} from '../support/machine/process.ts';

const read = (file: string) => readFileSync(ROOT + file, 'utf8');
const page = read('docs/operations.md');

describe('docs/operations.md', () => {
  const alerts = [...read('terraform/alerts.tf').matchAll(/^ {4}([a-z-]+) += \{ text/gm)].map(
    ([, name = '']) => name,
  );
  const policies = [
    ...read('terraform/alerts.tf').matchAll(/display_name += "Gleaner \$\{var\.name\}: ([a-z ]+)"/g),
  ];

  it('reads the alerts of Terraform', () => {
    assert.ok(alerts.length >= 9 && policies.length >= 3, `${alerts} ${policies}`);
  });

  for (const {title, words} of [
    {title: 'alert', words: [...alerts, ...policies.map(([, name = '']) => name)]},
    {title: 'status of a run', words: runDocument.shape.status.options},
    {title: 'status of a stream', words: streamDocument.shape.status.options},
    {title: 'constraint', words: CONSTRAINT_KINDS},
    {title: 'phase of a TPU', words: workerDocument.shape.phase.options},
    {title: 'status of a job', words: jobDocument.shape.status.options},
    {title: 'status of a command', words: execDocument.shape.status.options},
    {title: 'status of a host', words: execHostDocument.shape.status.options},
  ])
    for (const word of words)
      it(`explains the ${title} ${word}`, () => assert.ok(page.includes(`\`${word}\``), word));

  it('has the reasons of failed boots in the words of the boot, and a row for each kind', () => {
    const sources = ['worker-startup/startup.sh', 'shared/domain/worker/liveness.ts'].map(read).join();
    const [, table = ''] = /### A failed boot([\s\S]*?)\n## /.exec(page) ?? [];
    const reasons = [...table.matchAll(/^\|(?: `[^`]+`,?)+ \|/gm)].flatMap(
      ([row]) => row.match(/[^`|]+(?=`)/g) ?? [],
    );
    const words = reasons.map(text => text.trim()).filter(text => text.length > 1);
    assert.ok(words.length >= 10, words.join());
    const isSaid = (text: string) => text.split('…').every(part => sources.includes(part.trim()));
    assert.deepEqual(
      words.filter(text => !isSaid(text)),
      [],
    );
    const verbs = [...read('worker-startup/startup.sh').matchAll(/fail ["'](Failed to \w+)/g)].map(
      ([, verb = '']) => verb,
    );
    const ownCure = ['Failed to make', 'Failed to move', 'Failed to use'];
    assert.deepEqual(
      [...new Set(verbs)].filter(
        verb => !words.some(text => text.startsWith(verb)) && !ownCure.includes(verb),
      ),
      [],
    );
  });

  for (const {name} of CHECKS)
    it(`names the check of the doctor ${name}`, () => assert.ok(page.includes(`\`${name}\``), name));
});

describe('docs/inside/emulation.md and docs/deploy.md', () => {
  it('explain each step of the smoke test', () => {
    const text = read('docs/inside/emulation.md');
    const absent = STEPS.filter(({name}, index) => !text.includes(`| ${index + 1} ${name} |`));
    assert.deepEqual(absent, []);
  });

  it('show what a plan of the example costs', () => {
    const {functions} = JSON.parse(read('functions/triggers.json')) as {
      functions: {memory: string; cpu: number; instances: number}[];
    };
    const example = JSON.parse(read('terraform/example.tfvars.json'));
    const named = {address: '', name: '', index: ''};
    const resources = [
      {...named, type: 'google_compute_router_nat', values: {}},
      ...functions.map(({memory, cpu, instances}) => ({
        ...{...named, type: 'google_cloudfunctions2_function'},
        values: {
          service_config: [
            {available_memory: memory, available_cpu: `${cpu}`, max_instance_count: instances},
          ],
        },
      })),
    ];
    const lines = costLines(mostAnHour(resources, example, example), example);
    for (const line of lines.map(each => each.replace(/, \S+ days old.*/, '')))
      assert.ok(read('docs/deploy.md').includes(line), line);
  });

  it('name the quotas of each generation', () => {
    const text = read('docs/deploy.md');
    for (const type of ['v5litepod-8', 'v5p-8', 'v6e-8', 'v4-8'])
      for (const spot of [true, false]) {
        const [id = ''] = quotaIdsOf(type, spot);
        assert.ok(text.includes(`\`${id}\``), id);
      }
  });
});
