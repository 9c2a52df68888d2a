%% The few functions of CouchDB's module of this name that users' Erlang functions call.
-module(couch_util).

-export([get_value/2, get_value/3, get_nested_json_value/2, to_binary/1, to_integer/1, to_list/1,
         json_encode/1, json_decode/1]).

get_value(Key, Props) -> get_value(Key, Props, undefined).

get_value(Key, Props, Default) ->
    case lists:keyfind(Key, 1, Props) of
        {_, Value} -> Value;
        false -> Default
    end.

%% Throws {not_found, _} as soon as a step leads nowhere.
get_nested_json_value({Props}, [Key | Path]) ->
    case lists:keyfind(Key, 1, Props) of
        {_, Value} -> get_nested_json_value(Value, Path);
        false -> throw({not_found, <<"missing json key: ", (to_binary(Key))/binary>>})
    end;
get_nested_json_value(Value, []) -> Value;
get_nested_json_value(_, _) -> throw({not_found, json_mismatch}).

to_binary(V) when is_binary(V) -> V;
to_binary(V) when is_atom(V) -> atom_to_binary(V, utf8);
to_binary(V) when is_integer(V) -> integer_to_binary(V);
to_binary(V) when is_list(V) -> unicode:characters_to_binary(V);
to_binary(V) -> iolist_to_binary(io_lib:format("~p", [V])).

to_integer(V) when is_integer(V) -> V;
to_integer(V) when is_list(V) -> list_to_integer(V);
to_integer(V) when is_binary(V) -> binary_to_integer(V).

to_list(V) when is_list(V) -> V;
to_list(V) when is_binary(V) -> binary_to_list(V);
to_list(V) when is_atom(V) -> atom_to_list(V);
to_list(V) when is_integer(V) -> integer_to_list(V).

json_encode(V) -> iolist_to_binary(settee_query_server:encode(V)).

json_decode(V) -> settee_query_server:decode(iolist_to_binary(V)).
