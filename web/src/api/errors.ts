/** The server's answer was an error: CouchDB's own shape. */
export class ApiError extends Error {
  /** The server says "unauthorized" to who is logged in, and may not. */
  isRefusal = false;

  constructor(
    readonly status: number,
    readonly error: string,
    readonly reason: string,
    /** The request's id, by which the server's log has it. */
    readonly requestId: string | null,
  ) {
    super(`${status} ${error}: ${reason}`);
  }
}

/** There was no answer. */
export class LostError extends Error {}

/** Whether what was asked for was given up. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}
