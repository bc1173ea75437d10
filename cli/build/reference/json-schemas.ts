/** JSON Schemas that editors and other programs read: of `run.json`, and of the messages on topic `control`. */
import {z} from 'zod';
import {runSpecInput} from '../../../shared/contracts/spec/spec.ts';
import {controlMessage} from '../../../shared/control-plane/events/commands/table.ts';

/** The part of `contradictions` that JSON Schema can express: if one key has this value, another must have that. */
const given = (properties: object) => ({properties, required: Object.keys(properties)});
const rule = (found: object, then: object | false) => ({if: given(found), then});
const STRING = {type: 'string'};
const RECORD_RULES = [
  rule({template: STRING, field: STRING}, false),
  rule({template: STRING, encoder: STRING}, false),
  rule({template: STRING, predictions_per_task: {minimum: 2}}, false),
  rule({template: STRING, template_kwargs: {minProperties: 1}}, false),
  rule({add_generation_prompt: {const: true}, continue_final_message: {const: true}}, false),
];
const OF_MESSAGES = {properties: {record: {properties: {template: {type: 'null'}, encoder: {type: 'null'}}}}};
const NO_ROWS = {features: {maxItems: 0}, moments: {type: 'null'}};
const ROWS_OF_SPANS = {type: 'string', pattern: '^(last|mean|max):'};
const RULES = [
  rule({stream_offset: {minimum: 1}}, given({affinity: {const: 'fixed'}})),
  rule({context_size: {type: 'integer'}}, given({over_long: {enum: ['chunk', 'pack']}})),
  rule({overlap: {minimum: 1}}, given({over_long: {const: 'chunk'}})),
  rule(
    {over_long: {enum: ['chunk', 'pack']}},
    {
      properties: {
        format: {not: {const: 'pkl.gz'}},
        record: {properties: {predictions_per_task: {maximum: 1}}},
      },
    },
  ),
  rule({generate: {type: 'object'}}, {properties: {over_long: {enum: ['reject', 'truncate']}}}),
  rule(
    {tokens: {type: 'string', pattern: '^((last|mean|max):)?generated$'}},
    given({generate: {type: 'object'}}),
  ),
  rule({mask: {const: 'generated'}}, given({generate: {type: 'object'}})),
  rule({over_long: {const: 'pack'}}, {properties: {keep: {maxItems: 0}}}),
  rule({tokens: {type: 'string', pattern: '^((last|mean|max):)?(assistant|turns)$'}}, OF_MESSAGES),
  rule({mask: {enum: ['assistant', 'turns']}}, OF_MESSAGES),
  rule({over_long: {enum: ['chunk', 'pack']}}, {properties: {tokens: {not: ROWS_OF_SPANS}}}),
  rule(
    {format: {const: 'pkl.gz'}},
    {
      properties: {
        dtype: {enum: ['fp16', 'fp32']},
        sites: {maxItems: 1},
        tokens: {not: ROWS_OF_SPANS},
        mask: {type: 'null'},
        ...{...NO_ROWS, project: {maxItems: 0}},
      },
    },
  ),
  rule({tokens: {type: 'string', pattern: '^(mean|max)(:|$)'}}, {properties: NO_ROWS}),
];

export function runSpecJsonSchema() {
  const schema = z.toJSONSchema(runSpecInput, {io: 'input'});
  Object.assign(schema.properties?.record ?? {}, {allOf: RECORD_RULES});
  return {
    ...schema,
    title: 'run.json',
    description:
      'What a run of Gleaner extracts. Every key has a default. That ranges and slices are not empty and positions lie within max_seq_length is checked when the run starts.',
    allOf: RULES,
  };
}

/** JSON Schema of the messages that operators publish, published as docs/control.schema.json. */
export function controlJsonSchema() {
  return {
    title: 'A message on topic control',
    ...z.toJSONSchema(controlMessage, {io: 'input', unrepresentable: 'any'}),
  };
}
