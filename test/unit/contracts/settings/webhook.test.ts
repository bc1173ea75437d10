/** Notifications as a receiver gets them. */
import assert from 'node:assert/strict';
import {noticeBody, receiverProblem, signedHeaders} from '../../../../shared/contracts/settings/webhook.ts';
import {newNotice} from '../../../../shared/domain/notices/notice.ts';

const NOW = Date.parse('2026-11-26T12:00:00.000Z');
const FROM = {project: 'a-project', deployment: 'gleaner', local_token: 'a-secret'};

const HOSTILE = 'Run <!channel> & <https://evil.example|click>\n*bold* \u202etxt';

function aNotice(text: string, reason: string | null) {
  const facts = {run: 'my-run', streams: 4, streams_completed: 3, streams_failed: 1, spent_usd: 5};
  return newNotice({type: 'run.paused', key: 'k', text, reason, facts}, NOW, 1000);
}

type Plain = {type: string; text: string};

describe('a notification', () => {
  it('in the format of Slack has only plain text, and no character that Slack reads as markup', () => {
    const body = noticeBody('slack', 'id-1', aNotice(HOSTILE, HOSTILE.repeat(100)), FROM);
    const {text, mrkdwn, parse, blocks} = JSON.parse(body);
    assert.deepEqual([mrkdwn, parse], [false, 'none']);
    const texts: Plain[] = blocks.flatMap(
      ({text, elements}: {text?: Plain; elements?: Plain[]}) => text ?? elements,
    );
    assert.ok(texts.every(({type}) => type === 'plain_text'));
    assert.deepEqual(
      [texts[0]?.text, texts.at(-1)?.text],
      [
        'Run &lt;!channel&gt; &amp; &lt;https://evil.example|click&gt; *bold* \ufffdtxt',
        'gleaner in a-project  ·  3 of 4 streams are completed, 1 failed  ·  $5.00',
      ],
    );
    for (const each of [text, ...texts.map(({text}) => text)]) {
      assert.doesNotMatch(each, /[<>]|&(?!amp;|lt;|gt;)|[\p{Cc}\p{Cf}]/u);
      assert.ok(each.length <= 3000, 'the limit of Slack for a text');
    }
  });

  it('has nothing of the configuration but the names of project and deployment', () => {
    for (const format of ['json', 'slack'] as const)
      assert.doesNotMatch(noticeBody(format, 'id-1', aNotice('a', 'b'), FROM), /a-secret|local_token/);
  });

  it('has the signature of the library standardwebhooks for these keys', () => {
    const signed = (key: string) =>
      signedHeaders('msg_1', '{"type":"run.completed"}', key, 1_614_265_330_999);
    assert.deepEqual(signed('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'), {
      'webhook-id': 'msg_1',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,AWqmbm2HDU5mX7Sh2AqyPY+KkZUjhxnk0KLfuV8wuBI=',
    });
    assert.equal(
      signed('0123456789abcdef0123456789abcdef')['webhook-signature'],
      'v1,oIsiZTEaroKoX8FIuKX7ogOn+LIZ0bjQlNaEOCQXqRo=',
    );
  });
});

describe('the address of a receiver', () => {
  const CASES: {address: string; google: boolean; local?: boolean}[] = [
    {address: 'https://hooks.example.com/services/T0/B0/x?token=1', google: true},
    {address: 'https://hooks.example.com:8443/', google: true},
    {address: 'http://hooks.example.com/', google: false},
    {address: 'http://127.0.0.1:9000/hook', google: false, local: true},
    {address: 'http://localhost:9000/hook', google: false, local: true},
    {address: 'http://[::1]:9000/', google: false, local: true},
    {address: 'http://127.0.0.1.example.com/', google: false},
    {address: 'http://127.1.2.3/', google: false},
    {address: 'https://user:password@hooks.example.com/', google: false},
    {address: 'https://127.0.0.1@hooks.example.com/', google: false},
    {address: 'https://169.254.169.254/computeMetadata/v1/', google: false},
    {address: 'https://0xa9fea9fe/', google: false},
    {address: 'https://[fd00::1]/', google: false},
    {address: 'https://metadata.google.internal./', google: false},
    {address: 'https://printer.local/', google: false},
    {address: 'https://intranet/', google: false},
    {address: 'file:///etc/passwd', google: false},
    {address: 'hooks.example.com', google: false},
    {address: '', google: false},
  ];
  for (const {address, google, local = google} of CASES)
    it(`"${address}" is ${google ? 'allowed' : local ? 'allowed on a local cloud' : 'refused'}`, () => {
      const allowed = [false, true].map(isLocal => receiverProblem(address, isLocal) === undefined);
      assert.deepEqual(allowed, [google, local]);
    });
});
