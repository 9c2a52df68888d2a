/** Measurements are two seconds apart: between two that are further apart, nothing was measured. */
export const GAP_S = 8;

/**
 * A path through what was measured, which is broken where a value is missing, and where nothing was
 * measured for a while. A measurement with neither neighbour is a dot.
 */
export function pathOf(
  times: number[],
  values: (number | null)[],
  place: (at: number, value: number) => string,
): string {
  const isJoined = (n: number) =>
    typeof values[n] === 'number' &&
    typeof values[n - 1] === 'number' &&
    (times[n] ?? 0) - (times[n - 1] ?? 0) <= GAP_S;
  return values
    .map((value, n) => {
      if (value === null) return '';
      const at = place(times[n] ?? 0, value);
      if (isJoined(n)) return `L${at}`;
      return isJoined(n + 1) ? `M${at}` : `M${at}h0`;
    })
    .join('');
}

/** Which of the times is nearest to one of them; `undefined` where nothing was measured. */
export function nearest(times: number[], at: number): number | undefined {
  const after = times.findIndex((time) => time >= at);
  const found =
    after < 1
      ? after === 0
        ? 0
        : times.length - 1
      : at - (times[after - 1] ?? 0) < (times[after] ?? 0) - at
        ? after - 1
        : after;
  return Math.abs((times[found] ?? Number.NaN) - at) <= GAP_S / 2 ? found : undefined;
}
