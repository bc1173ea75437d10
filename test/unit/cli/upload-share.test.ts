import assert from 'node:assert/strict';
import {uploadWarning} from '../../../cli/checks/upload.ts';
import {uploadOf, uploadText} from '../../../cli/run/estimate/upload-share.ts';
import {completeSpec} from '../../../shared/contracts/spec.ts';
import {aConfig} from '../../support/builders.ts';

const RUN = {layers: 24, dtype: 'bf16', tokens: 'all', accelerator: 'v5litepod-8'};
const BYTES_PER_TOKEN = 24 * 896 * 2;

describe('the upload of a run', () => {
  it('that binds the chips is said with their share and with what helps', () =>
    assert.equal(
      uploadText(uploadOf(942_366, BYTES_PER_TOKEN), RUN),
      'the upload of 24 layers in bf16 needs 41 GB/s, and a host has about 1.0 GB/s: the chips of v5litepod-8 are busy 2 % of the time; ' +
        'this helps: fewer layers, dtype int8, tokens "mean", more TPUs with fewer chips',
    ));

  it('that keeps up is not mentioned', () =>
    assert.equal(uploadText(uploadOf(224_976, 896 * 2), {...RUN, layers: 1}), undefined));

  it('offers only changes that the run has not made', () => {
    const made = {layers: 1, dtype: 'int8', tokens: 'mean', accelerator: 'v5litepod-1'};
    assert.doesNotMatch(uploadText(uploadOf(1e6, 4096), made) ?? '', /helps/);
  });

  it('follows before a start from the sizes of the model', () => {
    const config = {
      ...{model_type: 'qwen2', num_hidden_layers: 24, hidden_size: 896, intermediate_size: 4864},
      ...{num_attention_heads: 14, num_key_value_heads: 2},
    };
    const warning = (changes: object, spec: object = {}) =>
      uploadWarning(
        JSON.stringify({...config, ...changes}),
        completeSpec({model: 'm', ...spec}, aConfig()).spec,
        'v5litepod-1',
      );
    // 2 x 24 x 14.9 million operations a token, at 0.4 of 197 TFLOP/s.
    assert.match(warning({}) ?? '', /24 layers in bf16 needs 4\.7 GB\/s.*busy 21 %/);
    assert.equal(warning({}, {layers: [12]}), undefined);
    assert.equal(warning({}, {tokens: 'last'}), undefined);
    assert.equal(warning({model_type: 'mixtral', num_local_experts: 8}), undefined);
    assert.equal(warning({hidden_size: 'wide'}), undefined);
  });
});
