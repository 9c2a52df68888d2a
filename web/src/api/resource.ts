import { useEffect, useRef, useState } from 'preact/hooks';
import { isLost, returns } from './connection';
import { isAborted } from './errors';

/** What was asked of the server, and how that stands. */
export interface Resource<T> {
  /** What came last; it stays while it is asked for again. */
  data: T | undefined;
  error: unknown;
  isLoading: boolean;
  /** Asks again. */
  reload: () => void;
}

/**
 * Asks when `key` changes, and again when a lost server has come back. What is not wanted any more
 * is given up. `every`: asks again after so many milliseconds, but not while nobody looks, or
 * before the last answer has come. `load` is told whether it is a timer that asks (`background`):
 * only what its user wants asks for a password when the session has ended.
 */
export function useResource<T>(
  key: string | undefined,
  load: (signal: AbortSignal, background: boolean) => Promise<T>,
  every?: number,
): Resource<T> {
  const [state, setState] = useState<{
    key: string | undefined;
    data: T | undefined;
    error: unknown;
  }>({ key: undefined, data: undefined, error: undefined });
  const [round, setRound] = useState(0);
  const came = returns.value;
  const loader = useRef(load);
  loader.current = load;
  const isByTimer = useRef(false);
  const isBusy = useRef(false);
  useEffect(() => {
    if (key === undefined) return;
    const control = new AbortController();
    const settle = (set: () => void) => {
      if (control.signal.aborted) return;
      isBusy.current = false;
      set();
    };
    isBusy.current = true;
    loader.current(control.signal, isByTimer.current).then(
      (data) => settle(() => setState({ key, data, error: undefined })),
      (error: unknown) =>
        settle(
          () =>
            !isAborted(error) &&
            setState((old) => ({ key, data: old.key === key ? old.data : undefined, error })),
        ),
    );
    isByTimer.current = false;
    return () => control.abort();
  }, [key, round, came]);
  const askAgain = () => {
    if (isBusy.current) return;
    isByTimer.current = true;
    setRound((n) => n + 1);
  };
  usePoll(askAgain, key === undefined ? undefined : every);
  const isCurrent = state.key === key;
  return {
    data: isCurrent ? state.data : undefined,
    error: isCurrent ? state.error : undefined,
    isLoading: key !== undefined && !isCurrent,
    reload: () => setRound((n) => n + 1),
  };
}

/**
 * Does something again and again, while the page is looked at and the server is there; at once when
 * it is looked at again.
 */
export function usePoll(work: () => void, every: number | undefined): void {
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => {
    if (every === undefined) return;
    let last = Date.now();
    const turn = () => {
      if (document.hidden || isLost.value || Date.now() - last < every - 50) return;
      last = Date.now();
      latest.current();
    };
    const timer = setInterval(turn, every);
    document.addEventListener('visibilitychange', turn);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', turn);
    };
  }, [every]);
}
