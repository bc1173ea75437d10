/** The reporter `spec`, and after it the ten slowest tests and hooks. A hook makes what the tests of its file share, such as a cloud. */
import {type Hook, type MochaOptions, Runner, reporters, type Test} from 'mocha';

const {EVENT_HOOK_END, EVENT_RUN_END, EVENT_TEST_END} = Runner.constants;
const SHOWN = 10;

export default class SpecAndSlowest extends reporters.Spec {
  constructor(runner: Runner, options: MochaOptions) {
    super(runner, options);
    const ended: (Test | Hook)[] = [];
    runner.on(EVENT_TEST_END, test => ended.push(test));
    runner.on(EVENT_HOOK_END, hook => ended.push(hook));
    runner.once(EVENT_RUN_END, () => {
      const slowest = ended.sort((a, b) => (b.duration ?? 0) - (a.duration ?? 0)).slice(0, SHOWN);
      const lines = slowest.map(
        each => `${((each.duration ?? 0) / 1000).toFixed(1).padStart(7)} s  ${each.fullTitle()}`,
      );
      console.log(`slowest tests\n${lines.join('\n')}\n`);
    });
  }
}
