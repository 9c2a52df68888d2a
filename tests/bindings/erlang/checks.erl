%% `ok NAME` or `not ok NAME: why` for each part of a module, and `done` at the end. A part is an exported function of one argument, an
%% empty folder.
-module(checks).

-export([run/2, until/1, refused/2]).

-spec run(module(), [string()]) -> no_return().
run(Module, Wanted) ->
    Parts = [Name || {Name, 1} <- Module:module_info(exports), Name =/= module_info, Name =/= main],
    lists:foreach(fun(Name) -> part(Module, Name) end, [Name || Name <- Parts, Wanted =:= [] orelse lists:member(atom_to_list(Name), Wanted)]),
    io:format("done~n"),
    halt(0).

%% Each part has a process of its own, so that what it leaves behind is closed.
part(Module, Name) ->
    Folder = string:trim(os:cmd("mktemp -d -t settee-bindings-XXXXXX")),
    {Pid, Monitor} = spawn_monitor(fun() -> Module:Name(list_to_binary(Folder)) end),
    Shown = lists:flatten(string:replace(atom_to_list(Name), "_", " ", all)),
    receive
        {'DOWN', Monitor, process, Pid, normal} -> io:format("ok ~ts~n", [Shown]);
        {'DOWN', Monitor, process, Pid, Reason} -> io:format("not ok ~ts: ~0tp~n", [Shown, Reason])
    end,
    os:cmd("rm -rf " ++ Folder).

%% Waits until a function returns true.
-spec until(fun(() -> boolean())) -> ok.
until(Is) ->
    case Is() of
        true -> ok;
        false -> timer:sleep(5), until(Is)
    end.

%% The reason of an error with this code.
-spec refused(atom() | binary(), term()) -> binary().
refused(Code, {error, {Code, Reason}}) when is_binary(Reason) -> Reason.
