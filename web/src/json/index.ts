// JSON without loss: numbers stay as they were written, members stay in their order.

export { JsonError, type Problem, parse } from './parse';
export { print } from './print';
export { from, type Json, member, Num, number, Obj, text } from './value';
