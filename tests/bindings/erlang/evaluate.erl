%% Evaluates a file as the shell does, one expression after another, with the variables of the earlier ones.
-module(evaluate).

-export([file/1]).

-spec file([file:name()]) -> no_return().
file([Name]) ->
    {ok, Text} = file:read_file(Name),
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
    evaluate(Tokens, [], erl_eval:new_bindings()),
    halt(0).

evaluate([], [], _Bindings) ->
    ok;
evaluate([{dot, _} = Dot | Tokens], Expression, Bindings) ->
    {ok, Parsed} = erl_parse:parse_exprs(lists:reverse([Dot | Expression])),
    {value, _Value, Added} = erl_eval:exprs(Parsed, Bindings),
    evaluate(Tokens, [], Added);
evaluate([Token | Tokens], Expression, Bindings) ->
    evaluate(Tokens, [Token | Expression], Bindings).
