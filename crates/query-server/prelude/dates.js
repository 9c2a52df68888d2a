// Dates in other forms than ISO 8601, as SpiderMonkey, CouchDB's engine, reads them: `2011/12/25`, `Dec 25, 1995`,
// `25 Dec 1995 13:30 +0430`. The host reads the text. What is no such date is NaN, also where QuickJS would read something else.

const BaseDate = Date;
const { construct } = Reflect;
const { UTC: utcTime, now: timeNow } = Date;
const nativeDateText = uncurry(Date.prototype.toString);
const setDay = uncurry(Date.prototype.setFullYear);
const setTimeOfDay = uncurry(Date.prototype.setHours);
const inUtc = {
  __proto__: null,
  year: uncurry(Date.prototype.getUTCFullYear),
  month: uncurry(Date.prototype.getUTCMonth),
  day: uncurry(Date.prototype.getUTCDate),
  hours: uncurry(Date.prototype.getUTCHours),
  minutes: uncurry(Date.prototype.getUTCMinutes),
  seconds: uncurry(Date.prototype.getUTCSeconds),
  ms: uncurry(Date.prototype.getUTCMilliseconds),
};

/** The date that has the same day and time of day in the time zone as one has in UTC. */
function toLocal(time) {
  const utc = new BaseDate(time);
  const date = new BaseDate(2000, 0, 1);
  setDay(date, inUtc.year(utc), inUtc.month(utc), inUtc.day(utc));
  setTimeOfDay(date, inUtc.hours(utc), inUtc.minutes(utc), inUtc.seconds(utc), inUtc.ms(utc));
  return date;
}

/** The date of a text. */
function dateOf(text) {
  const time = host.readDate(text);
  if (typeof time === "string") return toLocal(+time);
  return new BaseDate(time === null ? NaN : time);
}

/** Has `Date` read texts as SpiderMonkey does. */
function readDates() {
  const ReadingDate = function Date(year, month, date, hours, minutes, seconds, ms) {
    if (new.target === undefined) return nativeDateText(new BaseDate());
    if (arguments.length !== 1) return construct(BaseDate, arguments, new.target);
    const isText = typeof year === "string";
    if (new.target !== ReadingDate) return construct(BaseDate, [isText ? timeOf(dateOf(year)) : year], new.target);
    return isText ? dateOf(year) : new BaseDate(year);
  };
  const prototype = BaseDate.prototype;
  defineProperty(ReadingDate, "prototype", { __proto__: null, value: prototype, writable: false, enumerable: false, configurable: false });
  defineMethods(ReadingDate, {
    now: timeNow,
    UTC: utcTime,
    parse(text) {
      return timeOf(dateOf(toText(text)));
    },
  });
  defineMethods(prototype, { constructor: ReadingDate });
  defineMethods(global, { Date: ReadingDate });
}

api.readDates = readDates;
