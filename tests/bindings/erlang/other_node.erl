%% What another node does, in tests of this one.
-module(other_node).

-export([result/2, open/1, write_and_halt/1]).

%% What a function of this module prints in another node.
-spec result(atom(), binary()) -> string().
result(Function, Folder) ->
    Path = filename:dirname(code:which(?MODULE)),
    os:cmd(lists:concat(["erl -noshell -pa ", Path, " -run other_node ", Function, " ", binary_to_list(Folder)])).

-spec open([string()]) -> no_return().
open([Folder]) ->
    case settee:open(Folder) of
        {ok, _} -> io:put_chars("ok");
        {error, {Code, _}} -> io:format("~s", [Code])
    end,
    halt(0).

%% Writes that do not wait for the disk, and an end without a close, while another process reads.
-spec write_and_halt([string()]) -> no_return().
write_and_halt([Folder]) ->
    {ok, Directory} = settee:open(Folder),
    {ok, Db} = settee:create(Directory, <<"a">>),
    [{ok, _} = settee:put(Db, #{n => N}, #{delayed => true}) || N <- lists:seq(1, 5000)],
    spawn(fun() -> settee:to_list(settee:all_docs(Db)) end),
    halt(0).
