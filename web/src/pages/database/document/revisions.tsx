import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ApiError, read, useResource } from '../../../api';
import { count } from '../../../i18n';
import { type Obj, print } from '../../../json';
import { Badge, Button, Compare, Empty, Loading, Problem, style, say as tell } from '../../../ui';
import type { Draft } from './draft';
import { Sides } from './edit';
import { readTree } from './leaves';
import { say } from './texts';
import { type Node, short } from './tree';

/** The tree of revisions as a picture, and one of them beside the present text. */
export function Revisions({ draft, onTaken }: { draft: Draft; onTaken: () => void }): JSX.Element {
  const tree = useResource(`${draft.path} ${draft.changes.value}`, (signal) =>
    readTree(draft, signal),
  );
  const [chosen, setChosen] = useState<string | undefined>();
  const nodes = tree.data;
  if (!nodes)
    return tree.error === undefined ? (
      <Loading />
    ) : (
      <Problem error={tree.error} retry={tree.reload} />
    );
  const node = nodes.find((each) => each.rev === chosen);
  return (
    <div class="revisions">
      <Tree nodes={nodes} chosen={chosen} onChoose={setChosen} />
      <div class="fill">
        {node ? (
          <Revision key={node.rev} draft={draft} node={node} onTaken={onTaken} />
        ) : (
          <Empty icon="branch" title={say().chooseRev} />
        )}
      </div>
    </div>
  );
}

const ROW = 32;
const LANE = 18;

function Tree({
  nodes,
  chosen,
  onChoose,
}: {
  nodes: Node[];
  chosen: string | undefined;
  onChoose: (rev: string) => void;
}): JSX.Element {
  const t = say();
  const lanes = Math.max(...nodes.map((node) => node.lane)) + 1;
  const width = lanes * LANE + 6;
  const rows = new Map(nodes.map((node, row) => [node.rev, row]));
  const at = (node: Node, row: number) => ({ x: node.lane * LANE + 12, y: row * ROW + ROW / 2 });
  return (
    <div class="tree">
      <svg
        ref={(element) =>
          style(element as unknown as HTMLElement, {
            width: `${width}px`,
            height: `${nodes.length * ROW}px`,
          })
        }
        viewBox={`0 0 ${width} ${nodes.length * ROW}`}
        aria-hidden="true"
      >
        {nodes.map((node, row) => {
          const parent = rows.get(node.parent ?? '');
          const to = parent === undefined ? undefined : nodes[parent];
          return to && <path key={node.rev} d={edge(at(node, row), at(to, parent ?? 0))} />;
        })}
        {nodes.map((node, row) => {
          const { x, y } = at(node, row);
          return (
            <circle key={node.rev} class={looks(node)} cx={x} cy={y} r={node.leaf ? 5.5 : 4} />
          );
        })}
      </svg>
      <ol aria-label={t.tree}>
        {nodes.map((node) => (
          <li
            key={node.rev}
            ref={(element) => style(element, { 'padding-inline-start': `${width}px` })}
          >
            {node.more > 0 ? (
              <span class="soft">{t.older(count(node.more))}</span>
            ) : (
              <button
                type="button"
                class="plain"
                aria-pressed={node.rev === chosen}
                title={node.rev}
                onClick={() => onChoose(node.rev)}
              >
                <code>{short(node.rev)}</code>
                {node.leaf?.isWinner && <Badge kind="good">{t.winner}</Badge>}
                {node.leaf && !node.leaf.isWinner && !node.leaf.isDeleted && (
                  <Badge kind="warn">{t.conflict}</Badge>
                )}
                {node.leaf?.isDeleted && <Badge kind="bad">{t.isDeleted}</Badge>}
                {node.isThere === false && <Badge>{t.compacted}</Badge>}
              </button>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}

interface Point {
  x: number;
  y: number;
}

/** Down in its own lane, and over to the parent's in the last row. */
function edge(from: Point, to: Point): string {
  return from.x === to.x
    ? `M${from.x} ${from.y}V${to.y}`
    : `M${from.x} ${from.y}V${to.y - ROW}C${from.x} ${to.y - ROW / 3} ${to.x} ${to.y - ROW / 1.5} ${to.x} ${to.y}`;
}

function looks({ leaf, isThere }: Node): string {
  if (leaf?.isDeleted) return 'deleted';
  if (leaf) return leaf.isWinner ? 'winner' : 'conflict';
  return isThere === false ? 'gone' : '';
}

/** A revision's content; `undefined` where it is not there any more. */
async function readRevision(
  draft: Draft,
  rev: string,
  signal: AbortSignal,
): Promise<Obj | undefined> {
  try {
    return (await read('GET', draft.path, { query: { rev }, signal })) as Obj;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

function Revision({
  draft,
  node,
  onTaken,
}: {
  draft: Draft;
  node: Node;
  onTaken: () => void;
}): JSX.Element {
  const t = say();
  const { rev } = node;
  const content = useResource(`${draft.path} ${rev}`, async (signal) => ({
    doc: node.leaf?.doc ?? (await readRevision(draft, rev, signal)),
  }));
  if (!content.data)
    return content.error === undefined ? (
      <Loading />
    ) : (
      <Problem error={content.error} retry={content.reload} />
    );
  const { doc } = content.data;
  const take = () => {
    if (!doc) return;
    draft.takeContent(doc);
    tell(t.taken);
    onTaken();
  };
  return (
    <section class="fill" aria-label={`${t.thisRev} ${rev}`}>
      <div class="row-of">
        <h2 class="grow cut" title={rev}>
          {rev}
        </h2>
        {doc && (
          <>
            <a class="button" href={draft.href({ rev })} target="_blank" rel="noreferrer">
              {t.raw}
            </a>
            <Button icon="edit" onClick={take}>
              {t.takeAsText}
            </Button>
          </>
        )}
      </div>
      {doc ? (
        <>
          <Sides left={`${t.thisRev} ${short(rev)}`} right={t.present} />
          <Compare
            before={print(doc, 2)}
            after={draft.now}
            labels={[`${t.thisRev} ${rev}`, t.present]}
          />
        </>
      ) : (
        <p class="notice">{t.gone}</p>
      )}
    </section>
  );
}
