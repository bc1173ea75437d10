/** docs/tutorial.ipynb: the cells of docs/tutorial.md, in the format nbformat 4.5. */

/** A cell in the background shows no output, and the next cell does not wait for it. */
const LOG = 'local-up.log';
/** The kernel may be in any environment, and Jupyter begins in the folder of the notebook. */
const SETUP = `root = !git rev-parse --show-toplevel
%cd -q {root[0]}
!rm -f ${LOG}
!npm ci --silent
%pip install --quiet ./worker-startup/gleaner_reader tokenizers
`;
const WAIT = `%%bash
for each in {1..300}; do grep "is up" ${LOG} && exit; sleep 1; done
cat ${LOG}; exit 1
`;

/** Cells of code for a fenced block; none for a block that is only read. */
function codeOf(info: string, body: string): string[] {
  if (info === 'sh setup') return [SETUP];
  if (info === 'sh background') return [`%%bash --bg\nexec ${body.trim()} > ${LOG} 2>&1\n`, WAIT];
  if (info === 'sh run') return [`%%bash -e\n${body}`];
  return info === 'python run' ? [body] : [];
}

function cell(text: string, cell_type: 'code' | 'markdown', number: number): object {
  const source = text.trim().split(/(?<=\n)/);
  const more = cell_type === 'code' ? {execution_count: null, outputs: []} : {};
  return {cell_type, id: `cell-${number}`, metadata: {}, ...more, source};
}

export function notebook(page: string): string {
  const cells: object[] = [];
  let prose = '';
  const endProse = () => {
    if (prose.trim()) cells.push(cell(prose, 'markdown', cells.length));
    prose = '';
  };
  const [first = '', ...blocks] = page.split(/^(?=```\S)/m);
  prose = first;
  for (const block of blocks) {
    const [, info = '', body = '', after = ''] = /^```(.+)\n([\s\S]*?)^```$([\s\S]*)/m.exec(block) ?? [];
    const code = codeOf(info, body);
    if (code.length === 0) prose += `\`\`\`${info.split(' ')[0]}\n${body}\`\`\``;
    else endProse();
    for (const text of code) cells.push(cell(text, 'code', cells.length));
    prose += after;
  }
  endProse();
  const kernelspec = {display_name: 'Python 3', language: 'python', name: 'python3'};
  const metadata = {kernelspec, language_info: {name: 'python'}};
  return `${JSON.stringify({cells, metadata, nbformat: 4, nbformat_minor: 5}, null, 1)}\n`;
}
