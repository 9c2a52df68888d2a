import type { Obj } from '../../../json';

export interface Leaf {
  rev: string;
  isDeleted: boolean;
  isWinner: boolean;
  doc: Obj;
  /** From the leaf to the root, as far as it is known. */
  history: string[];
}

export interface Node {
  rev: string;
  generation: number;
  parent: string | undefined;
  /** Each leaf has a lane; what leads to several is in the first one's. */
  lane: number;
  leaf: Leaf | undefined;
  /** Whether its content is there; `undefined` where nobody asked. */
  isThere: boolean | undefined;
  /** How many it stands for, where they were all compacted. */
  more: number;
}

/** Fewer compacted revisions in a row are shown each by itself. */
const RUN_MIN = 4;

/** Lanes and order of what the leaves' histories say. */
export function shape(leaves: Leaf[], there: Map<string, boolean>): Node[] {
  const nodes = new Map<string, Node>();
  leaves.forEach((leaf, lane) => {
    for (const [n, rev] of leaf.history.entries()) {
      if (nodes.has(rev)) break;
      nodes.set(rev, {
        rev,
        generation: generation(rev),
        parent: leaf.history[n + 1],
        lane,
        leaf: n === 0 ? leaf : undefined,
        isThere: there.get(rev),
        more: 0,
      });
    }
  });
  return fold(nodes).sort((a, b) => b.generation - a.generation || a.lane - b.lane);
}

/** Long runs of compacted revisions become one. */
function fold(nodes: Map<string, Node>): Node[] {
  const children = new Map<string, number>();
  for (const { parent } of nodes.values())
    if (parent) children.set(parent, (children.get(parent) ?? 0) + 1);
  const isDull = (node: Node | undefined): node is Node =>
    node !== undefined && node.isThere === false && !node.leaf && children.get(node.rev) === 1;
  const gone = new Set<string>();
  for (const node of nodes.values()) {
    if (gone.has(node.rev) || !isDull(node)) continue;
    const run = [node];
    for (
      let next = nodes.get(node.parent ?? '');
      isDull(next) && next.lane === node.lane;
      next = nodes.get(next.parent ?? '')
    )
      run.push(next);
    if (run.length < RUN_MIN) continue;
    for (const each of run.slice(1)) gone.add(each.rev);
    node.more = run.length;
    node.parent = run.at(-1)?.parent;
  }
  return [...nodes.values()].filter((node) => !gone.has(node.rev));
}

export function generation(rev: string): number {
  return Number.parseInt(rev, 10);
}

/** A revision's name as far as people compare it. */
export function short(rev: string): string {
  return rev.length > 14 ? `${rev.slice(0, 12)}…` : rev;
}
