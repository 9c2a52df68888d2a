import { count } from '../../i18n';
import { budgets } from './texts';

/** Few digits: rates change all the time. */
export function short(value: number): string {
  return count(value < 10 ? Math.round(value * 100) / 100 : Math.round(value));
}

/** What a budget of memory is for. */
export function budgetName(name: string): string {
  return budgets()[name] ?? name.replaceAll('_', ' ');
}
