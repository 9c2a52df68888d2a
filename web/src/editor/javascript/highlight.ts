import { styleTags, tags as t } from '@lezer/highlight';

/** Of the names of the grammar, those that the editor colours. */
export const jsHighlight = styleTags({
  'for while do if else switch try catch finally return throw break continue default case':
    t.controlKeyword,
  'in of await yield void typeof delete instanceof': t.operatorKeyword,
  'get set async static let var const function class extends with debugger new': t.keyword,
  BooleanLiteral: t.bool,
  'this super': t.self,
  null: t.null,
  'CallExpression/VariableName TaggedTemplateExpression/VariableName': t.function(t.variableName),
  VariableDefinition: t.definition(t.variableName),
  PropertyName: t.propertyName,
  PropertyDefinition: t.definition(t.propertyName),
  'LineComment BlockComment': t.comment,
  Number: t.number,
  'String TemplateString RegExp': t.string,
});
