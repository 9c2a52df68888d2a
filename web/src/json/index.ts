// JSON without loss: numbers stay as they were written, members stay in their order.

export { type Json, Num, Obj, from, member, number, text } from './value';
export { JsonError, type Problem, parse } from './parse';
export { print } from './print';
