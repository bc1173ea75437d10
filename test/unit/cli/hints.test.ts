import assert from 'node:assert/strict';
import {gleanerProgram} from '../../../cli/program.ts';
import {setTyped, setTypedCloud, startOf, withHints} from '../../../client/text/hints.ts';

describe('A command that a text names', () => {
  const program = gleanerProgram();
  afterEach(() => setTyped({start: 'gleaner', cloud: {}, program: undefined}));

  const cases = [
    {
      what: 'has the port of the cloud',
      text: '`gleaner run resume my-run`',
      then: '`npx gleaner run resume my-run --port 9000`',
    },
    {what: 'keeps its own port', text: '`gleaner status --port 1`', then: '`npx gleaner status --port 1`'},
    {
      what: 'has no port where the command knows none',
      text: '`gleaner streams create`',
      then: '`npx gleaner streams create`',
    },
    {
      what: 'has the port before the words of another program',
      text: '`gleaner exec tpu -- ls -l`',
      then: '`npx gleaner exec tpu --port 9000 -- ls -l`',
    },
    {what: 'has npx once', text: '`npx gleaner local up`', then: '`npx gleaner local up --port 9000`'},
    {what: 'of another program stays', text: '`gcloud storage ls`', then: '`gcloud storage ls`'},
  ];
  it('a command that a text names has the folder of a cloud that other commands would not find', () => {
    setTyped({start: 'gleaner', cloud: {port: 0}, program});
    setTypedCloud({dir: '/tmp/cloud'});
    assert.equal(withHints('`gleaner run resume x`'), '`gleaner run resume x --dir /tmp/cloud`');
  });

  it('a command that a text names is the rest of a line too', () => {
    setTyped({start: 'npx gleaner', cloud: {port: 9000}, program});
    assert.equal(
      withHints('repair it, then: gleaner jobs retry x'),
      'repair it, then: npx gleaner jobs retry x --port 9000',
    );
    assert.equal(
      withHints('  next step   gleaner scale tpu'),
      '  next step   npx gleaner scale tpu --port 9000',
    );
    assert.equal(withHints('gleaner: There is no job x'), 'gleaner: There is no job x');
    assert.equal(withHints('gleaner 0.1.0'), 'gleaner 0.1.0');
  });

  for (const {what, text, then} of cases)
    it(`${what}: ${text}`, () => {
      setTyped({start: startOf({npm_lifecycle_event: 'npx'}), cloud: {port: 9000}, program});
      assert.equal(withHints(`do ${text}, then wait`), `do ${then}, then wait`);
    });

  it('a command that a text names is gleaner alone where npm has not started this one', () => {
    setTyped({start: startOf({}), cloud: {}, program});
    assert.equal(withHints('`gleaner status`'), '`gleaner status`');
  });
});
