%% A process that reads a live feed, and sends its changes to the process that follows. It sends the next ones when these are handled,
%% so that a slow process is not flooded. It ends with the process that follows.
-module(settee_follower).

-export([start/2, more/1, stop/1]).

-spec start(settee:database(), map()) -> {ok, pid()} | {error, settee:error()}.
start(Db, Options) ->
    Subscriber = self(),
    Ref = make_ref(),
    {Pid, Monitor} = spawn_monitor(fun() -> init(Db, Options, Subscriber, Ref) end),
    receive
        {Ref, Result} ->
            demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            exit(Reason)
    end.

-spec more(pid()) -> ok.
more(Follower) ->
    Follower ! {more, self()},
    ok.

-spec stop(pid()) -> ok.
stop(Follower) ->
    Monitor = monitor(process, Follower),
    Follower ! {stop, self()},
    receive
        {'DOWN', Monitor, process, Follower, _Reason} -> ok
    end,
    flush(Follower).

flush(Follower) ->
    receive
        {settee_changes, Follower, _} -> flush(Follower);
        {settee_end, Follower, _} -> flush(Follower)
    after 0 -> ok
    end.

init(Db, Options, Subscriber, Ref) ->
    Monitor = monitor(process, Subscriber),
    case settee:changes(Db, Options#{live => true}) of
        {ok, Feed} ->
            Subscriber ! {Ref, {ok, self()}},
            read(Feed, Subscriber, Monitor);
        {error, _} = Error ->
            Subscriber ! {Ref, Error}
    end.

read(Feed, Subscriber, Monitor) ->
    Tag = make_ref(),
    case settee_nif:next(Tag, Feed, infinity) of
        ok ->
            receive
                {Tag, {ok, Changes}} ->
                    Subscriber ! {settee_changes, self(), Changes},
                    wait(Feed, Subscriber, Monitor);
                {Tag, Ended} ->
                    Subscriber ! {settee_end, self(), Ended};
                {stop, Subscriber} ->
                    settee:close(Feed);
                {'DOWN', Monitor, process, Subscriber, _Reason} ->
                    settee:close(Feed)
            end;
        {error, _} = Error ->
            Subscriber ! {settee_end, self(), Error}
    end.

wait(Feed, Subscriber, Monitor) ->
    receive
        {more, Subscriber} -> read(Feed, Subscriber, Monitor);
        {stop, Subscriber} -> settee:close(Feed);
        {'DOWN', Monitor, process, Subscriber, _Reason} -> settee:close(Feed)
    end.
