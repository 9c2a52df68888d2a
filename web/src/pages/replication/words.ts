import { server } from '../../api';
import { t } from './texts';

/** An address or an error without the passwords that addresses may hold. */
export function bare(text: string): string {
  return text.replace(/(\w+:\/\/)[^/@\s]*@/g, '$1');
}

/** An address as people say it: a database of this server by its name, others with their host. */
export function short(address: string, own: string[] = []): string {
  const plain = bare(address).replace(/\/$/, '');
  for (const base of [server.href, ...own]) {
    const start = base.replace(/\/?$/, '/');
    if (plain.startsWith(start)) return decode(plain.slice(start.length));
  }
  return decode(plain.replace(/^https?:\/\//, ''));
}

/** Unescaped, where it can be. */
export function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * What an error of a replication means; `undefined` for one that only the server's own words
 * describe.
 */
export function meaning(error: string): string | undefined {
  const w = t().errors;
  if (/specified by document|already started|duplicate_job/.test(error)) return w.same;
  if (/db_not_found|could not open|not_found/.test(error)) return w.missing;
  if (/unauthorized|\b401\b|session_request_unauthorized/.test(error)) return w.unauthorized;
  if (/forbidden|\b403\b/.test(error)) return w.forbidden;
  if (/lookup address|nxdomain|Name or service/i.test(error)) return w.name;
  if (/refused|econnrefused|cannot connect|conn_failed|unreachable/i.test(error)) return w.refused;
  if (/timeout|timed out/i.test(error)) return w.timeout;
  if (/certificate|\btls\b|\bssl\b/i.test(error)) return w.certificate;
  if (/db_exists|file_exists|already exists/.test(error)) return w.exists;
  if (/local_endpoints/.test(error)) return w.local;
  if (/invalid url|invalid_url|bad_request|parse/.test(error)) return w.bad;
  return undefined;
}
