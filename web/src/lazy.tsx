import type { ComponentType, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Loading } from './ui/controls';
import { Problem } from './ui/errors';

/**
 * A component whose code is fetched when it is first shown. Where that fails, it can be tried
 * again.
 */
export function lazy<P extends object>(
  load: () => Promise<{ default: ComponentType<P> }>,
): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Lazy(props: P): JSX.Element {
    const [Component, setComponent] = useState<ComponentType<P> | undefined>(() => loaded);
    const [error, setError] = useState<unknown>();
    const [round, setRound] = useState(0);
    useEffect(() => {
      if (loaded) return;
      load().then(
        (module) => setComponent(() => (loaded = module.default)),
        (thrown: unknown) => setError(thrown),
      );
    }, [round]);
    const retry = () => {
      setError(undefined);
      setRound(round + 1);
    };
    if (error !== undefined) return <Problem error={error} retry={retry} />;
    return Component ? <Component {...props} /> : <Loading />;
  };
}
