import assert from 'node:assert/strict';
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {openWorkspace} from '../../cli/terraform/workspace.ts';
import {unknownElements} from './unknown-elements.ts';

/** Changes of the configuration that the real provider or Terraform refuses, and what the stand-in says. */
const CASES = [
  {
    title: 'an element of a validated set',
    file: 'topics.tf',
    from: 'event_types        = ["OBJECT_FINALIZE"]',
    to: 'event_types        = [each.value.event]',
    says: /Invalid google_storage_notification[\s\S]*an element of event_types is unknown before a plan/,
  },
  {
    title: 'an element of a list in a block',
    file: 'buckets.tf',
    from: 'matches_prefix = ["partials/"]',
    to: 'matches_prefix = [google_pubsub_topic.topic["dead"].name]',
    says: /Invalid google_storage_bucket[\s\S]*lifecycle_rule: condition: an element of matches_prefix is unknown/,
  },
  {
    title: 'the number of blocks that may come once',
    file: 'topics.tf',
    from: '  retry_policy {\n    minimum_backoff = "10s"',
    to: '  dynamic "retry_policy" {\n    for_each = contains(local.short_lived, each.value) ? [] : [1]\n    content {\n      minimum_backoff = "10s"\n    }\n  }\n  retry_policy {\n    minimum_backoff = "10s"',
    says: /the number of blocks retry_policy is unknown before a plan/,
  },
];

describe('the stand-in of the provider refuses what is unknown before a plan', () => {
  for (const {title, file, from, to, says} of CASES)
    it(title, async function () {
      const workspace = await openWorkspace(unknownElements);
      try {
        if (workspace.providers === 'installed') this.skip();
        const path = join(workspace.folder, file);
        const text = readFileSync(path, 'utf8');
        assert.ok(text.includes(from), `${file} has ${from}`);
        writeFileSync(path, text.replace(from, to));
        const {code, lines} = await workspace.terraform('validate');
        assert.equal(code, 1);
        assert.match(lines.join('\n'), says);
      } finally {
        await workspace.close();
      }
    });
});
