import { type Json, Num, Obj } from './value';

/** As text: on one line, or indented by so many spaces. */
export function print(value: Json, indent = 0): string {
  const out: string[] = [];
  write(value, indent, '\n', out);
  return out.join('');
}

function write(value: Json, indent: number, line: string, out: string[]): void {
  if (value instanceof Num) out.push(value.text);
  else if (Array.isArray(value))
    group('[', ']', value, indent, line, out, (each, inner) => write(each, indent, inner, out));
  else if (value instanceof Obj)
    group('{', '}', [...value], indent, line, out, ([name, of], inner) => {
      out.push(JSON.stringify(name), indent > 0 ? ': ' : ':');
      write(of, indent, inner, out);
    });
  else out.push(JSON.stringify(value));
}

function group<T>(
  open: string,
  close: string,
  parts: T[],
  indent: number,
  line: string,
  out: string[],
  each: (part: T, inner: string) => void,
): void {
  const inner = line + ' '.repeat(indent);
  out.push(open);
  parts.forEach((part, n) => {
    if (n > 0) out.push(',');
    if (indent > 0) out.push(inner);
    each(part, inner);
  });
  if (indent > 0 && parts.length > 0) out.push(line);
  out.push(close);
}
