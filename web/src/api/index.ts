export { ask, docPath, type Options, path, type Query, read, send, server, url } from './client';
export { isLost, returns } from './connection';
export { ApiError, isAborted, LostError } from './errors';
export { lines } from './lines';
export { type Resource, usePoll, useResource } from './resource';
export {
  isAdmin,
  isExpired,
  logIn,
  logOut,
  look,
  mayMeasure,
  type Session,
  session,
} from './session';
