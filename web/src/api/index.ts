export { server } from './address';
export { ask, docPath, type Options, path, type Query, read, send, url } from './client';
export { isLost, returns } from './connection';
export { ApiError, isAborted, LostError } from './errors';
export { lines } from './lines';
export { logIn, logOut, look } from './login';
export { type Resource, usePoll, useResource } from './resource';
export {
  isAdmin,
  isExpired,
  mayMeasure,
  type Session,
  session,
} from './session';
