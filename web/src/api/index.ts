export { type Options, type Query, ask, docPath, path, read, send, server, url } from './client';
export { ApiError, LostError, isAborted } from './errors';
export { isLost, returns } from './connection';
export {
  type Session,
  isAdmin,
  isExpired,
  logIn,
  logOut,
  look,
  mayMeasure,
  session,
} from './session';
export { type Resource, usePoll, useResource } from './resource';
export { lines } from './lines';
