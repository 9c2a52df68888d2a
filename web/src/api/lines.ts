/**
 * The lines of an answer, as many at a time as came at once: who shows thousands a second draws
 * once for many. Empty ones (heartbeats) are left out.
 */
export async function* lines(response: Response): AsyncGenerator<string[]> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    while (true) {
      const part = await reader?.read();
      if (!part || part.done) break;
      const all = (rest + part.value).split('\n');
      rest = all.pop() ?? '';
      const full = all.filter((line) => line !== '');
      if (full.length > 0) yield full;
    }
    if (rest !== '') yield [rest];
  } finally {
    await reader?.cancel().catch(() => undefined);
  }
}
