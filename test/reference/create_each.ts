/** Creates one stream of each Parquet file of a folder: `node test/reference/create_each.ts FOLDER`. */
import {readdirSync} from 'node:fs';
import {join} from 'node:path';
import {createStreams} from '../../cli/streams/create-streams.ts';

const [folder = '.'] = process.argv.slice(2);
for (const name of readdirSync(folder).filter(name => name.endsWith('.parquet')))
  await createStreams([join(folder, name)], {
    check: false,
    num_streams: 1,
    output_dir: join(folder, name.replace('.parquet', '')),
  });
