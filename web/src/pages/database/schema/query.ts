import { from, type Json, Obj, print } from '../../../json';
import type { Bin, Path, TypeName } from './model';

/** A path as Mango writes it. A dot that belongs to a name is escaped. */
export function dotted(names: string[]): string {
  return names.map((name) => name.replaceAll('.', '\\.')).join('.');
}

function of(name: string, value: Json): Obj {
  return new Obj([[name, value]]);
}

/** A selector that tests a field, or any element of the arrays on the way to it. */
export function condition(path: Path, test: Obj): Obj {
  const at = path.indexOf(null);
  const names = (at < 0 ? path : path.slice(0, at)) as string[];
  const inner = at < 0 ? test : of('$elemMatch', condition(path.slice(at + 1), test));
  return names.length === 0 ? inner : of(dotted(names), inner);
}

/** Mango takes names that begin so for operators. */
export function canBeQueried(path: Path): boolean {
  return path.every((name) => name === null || (name !== '' && !name.startsWith('$')));
}

export function equalTo(value: Json): Obj {
  return of('$eq', value);
}

export function ofType(type: TypeName): Obj {
  return of('$type', type);
}

export function exists(is: boolean): Obj {
  return of('$exists', is);
}

export function within({ from: least, to }: Bin): Obj {
  const test = of('$gte', least);
  if (to !== undefined) test.set('$lt', to);
  return test;
}

/** The text of a query with such a selector, as the editor begins with it. */
export function queryOf(selector: Obj): string {
  return print(from({ selector, limit: 25 }), 2);
}
