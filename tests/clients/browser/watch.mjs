// What no page may do: errors in the console, errors nobody caught, violations of the policy, requests to other hosts.

// The server's refusals, which pages show: browsers write them into the console by themselves.
const REFUSED = /^Failed to load resource: the server responded with a status of 4\d\d/;

export class Watch {
  constructor(allow) {
    this.allow = allow;
    this.console = [];
    this.errors = [];
    this.violations = [];
    this.foreign = [];
  }

  static async start(context, origin, allow) {
    const watch = new Watch(allow);
    await context.exposeBinding('tellViolation', (_, text) => watch.violations.push(text));
    await context.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) => window.tellViolation(`${event.violatedDirective}: ${event.blockedURI} in ${event.sourceFile}:${event.lineNumber} on ${location.hash}`));
    });
    context.on('console', (message) => {
      const text = message.text();
      if (message.type() !== 'error' || REFUSED.test(text) || watch.allow.some((each) => each.test(text))) return;
      watch.console.push(`${text} (${message.location().url}) on ${message.page()?.url()}`);
    });
    context.on('weberror', (error) => {
      const text = String(error.error()?.stack ?? error.error());
      if (!watch.allow.some((each) => each.test(text))) watch.errors.push(`${text} on ${error.page()?.url()}`);
    });
    context.on('request', (request) => {
      const url = request.url();
      if (!/^(data|blob|about):/.test(url) && new URL(url).origin !== origin && !watch.origins.has(new URL(url).origin)) watch.foreign.push(url);
    });
    return watch;
  }

  /** Other places of the same server that a scenario goes to by itself. */
  origins = new Set();

  told() {
    return [
      ['no errors in the console', this.console],
      ['no uncaught errors', this.errors],
      ['no violations of the policy', this.violations],
      ['no requests to other hosts', this.foreign],
    ].map(([what, found]) => [what, [...new Set(found)].slice(0, 10)]);
  }
}
