%% JSON text of documents, options and queries.
-module(settee_json).

-export([encode/1, options/2, documents/1, with/2]).

%% JSON text of a term; a binary in the place of a document is JSON text already. Short ones are written by this process's scheduler,
%% others by a dirty one.
-spec encode(term()) -> {ok, binary()} | {error, settee:error()}.
encode(Term) ->
    case settee_nif:text(Term) of
        Text when is_binary(Text) -> {ok, Text};
        large -> dirty(Term);
        {error, _} = Error -> Error
    end.

dirty(Term) ->
    case settee_nif:text_dirty(Term) of
        Text when is_binary(Text) -> {ok, Text};
        {error, _} = Error -> Error
    end.

%% JSON text of options, empty for none, without those that the caller handles itself.
-spec options(map(), [atom()]) -> {ok, binary()} | {error, settee:error()}.
options(Options, Own) ->
    case maps:without(Own, Options) of
        None when map_size(None) =:= 0 -> {ok, <<>>};
        Others -> encode(Others)
    end.

%% JSON text of each document.
-spec documents([settee:document()]) -> {ok, [binary()]} | {error, settee:error()}.
documents(Documents) ->
    case settee_nif:texts(Documents) of
        Texts when is_list(Texts) -> {ok, Texts};
        {error, _} = Error -> Error
    end.

%% Applies a function to the texts of several terms, in their order, unless one of them is not JSON.
-spec with([{ok, term()} | {error, settee:error()}], fun((...) -> Result)) -> Result | {error, settee:error()}.
with(Encoded, Function) ->
    case lists:keyfind(error, 1, Encoded) of
        false -> apply(Function, [Text || {ok, Text} <- Encoded]);
        Error -> Error
    end.
