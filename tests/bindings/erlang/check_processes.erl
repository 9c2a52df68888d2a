%% The Erlang package and processes: many, those that end, and schedulers. The suite `bindings` runs this, also with one scheduler of each
%% kind.
-module(check_processes).

-export([main/1]).
-export([
    many_processes_write_and_read_at_once/1,
    waiting_processes_hold_up_no_other/1,
    a_killed_process_leaves_nothing_behind/1,
    a_directory_is_closed_with_its_owner/1,
    a_restarted_owner_opens_its_directory_again/1,
    a_directory_without_references_is_closed/1,
    a_directory_is_held_by_what_was_opened_in_it/1,
    a_second_opener_is_refused/1,
    closing_closes_everything/1,
    a_node_that_halts_closes/1,
    large_terms_do_not_hold_up_a_scheduler/1,
    the_module_is_purged_and_loaded_again/1,
    cursors_that_are_dropped_leave_nothing_behind/1
]).

-import(checks, [refused/2, until/1]).

main(Wanted) ->
    checks:run(?MODULE, Wanted).

opened(Folder) ->
    {ok, Directory} = settee:open(Folder),
    {ok, Db} = settee:create(Directory, <<"a">>, #{exist_ok => true}),
    {Directory, Db}.

%% Runs a function of each number in a process of its own, and waits for all.
in_parallel(Numbers, Function) ->
    Started = [spawn_monitor(fun() -> Function(N) end) || N <- Numbers],
    [receive {'DOWN', Monitor, process, Pid, Reason} -> normal = Reason end || {Pid, Monitor} <- Started],
    ok.

many_processes_write_and_read_at_once(Folder) ->
    {Directory, Db} = opened(Folder),
    in_parallel(lists:seq(1, 500), fun(P) ->
        [
            begin
                Id = iolist_to_binary(io_lib:format("~b-~b", [P, N])),
                {ok, {Id, Rev}} = settee:put(Db, #{<<"_id">> => Id, n => N}),
                {ok, #{<<"_rev">> := Rev, <<"n">> := N}} = settee:get(Db, Id)
            end
         || N <- lists:seq(1, 10)
        ]
    end),
    {ok, #{<<"doc_count">> := 5000}} = settee:info(Db),
    % One counter, changed by all: a conflict is retried, and no change is lost.
    {ok, _} = settee:put(Db, #{<<"_id">> => <<"counter">>, n => 0}),
    in_parallel(lists:seq(1, 20), fun(_) -> [count(Db) || _ <- lists:seq(1, 10)] end),
    {ok, #{<<"n">> := 200}} = settee:get(Db, <<"counter">>),
    % One cursor, shared by all, gives each row once.
    {ok, Rows} = settee:all_docs(Db),
    Self = self(),
    in_parallel(lists:seq(1, 8), fun(_) -> {ok, Some} = settee:to_list(Rows), Self ! {some, Some} end),
    Ids = [Id || _ <- lists:seq(1, 8), #{<<"id">> := Id} <- receive {some, Some} -> Some end],
    5001 = length(Ids),
    5001 = length(lists:usort(Ids)),
    ok = settee:close(Directory).

count(Db) ->
    {ok, #{<<"n">> := N} = Doc} = settee:get(Db, <<"counter">>),
    case settee:put(Db, Doc#{<<"n">> => N + 1}) of
        {ok, _} -> ok;
        {error, {conflict, _}} -> count(Db)
    end.

waiting_processes_hold_up_no_other(Folder) ->
    {Directory, Db} = opened(Folder),
    Self = self(),
    % Many more than there are threads of any kind.
    Waiting = [
        spawn_link(fun() ->
            {ok, Feed} = settee:changes(Db, #{since => <<"now">>, live => true}),
            Self ! {ready, self()},
            {ok, [#{<<"id">> := Id} | _]} = settee:next(Feed),
            Self ! {saw, self(), Id}
        end)
     || _ <- lists:seq(1, 1000)
    ],
    [receive {ready, Pid} -> ok end || Pid <- Waiting],
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"x">>}),
    {ok, _} = settee:get(Db, <<"x">>),
    [receive {saw, Pid, <<"x">>} -> ok end || Pid <- Waiting],
    ok = settee:close(Directory).

a_killed_process_leaves_nothing_behind(Folder) ->
    {Directory, Db} = opened(Folder),
    {ok, Feed} = settee:changes(Db, #{since => <<"now">>, live => true}),
    Busy = fun(N) ->
        spawn(fun() ->
            case N rem 4 of
                0 -> [settee:put(Db, #{text => binary:copy(<<"x">>, 10000)}) || _ <- lists:seq(1, 1000000)];
                1 -> [settee:to_list(settee:all_docs(Db)) || _ <- lists:seq(1, 1000000)];
                2 -> settee:put_attachment(Db, <<"never">>, <<"x">>, endless());
                3 -> settee:next(Feed)
            end
        end)
    end,
    % Those that wait for the feed do not take what comes when they are killed.
    Killed = [Busy(N) || N <- lists:seq(1, 40)],
    {ok, Before} = written(Db, 20),
    [exit(Pid, kill) || Pid <- Killed],
    until(fun() -> not lists:any(fun is_process_alive/1, Killed) end),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"after">>}),
    seen(Feed, <<"after">>),
    {ok, #{<<"doc_count">> := After}} = settee:info(Db),
    true = After > Before,
    _ = refused(not_found, settee:get(Db, <<"never">>)),
    ok = settee:close(Directory),
    {Again, Reopened} = opened(Folder),
    {ok, _} = settee:get(Reopened, <<"after">>),
    ok = settee:close(Again).

seen(Feed, Id) ->
    {ok, Changes} = settee:next(Feed),
    lists:any(fun(#{<<"id">> := Changed}) -> Changed =:= Id end, Changes) orelse seen(Feed, Id).

endless() ->
    fun() -> {ok, <<0:8000>>, endless()} end.

written(Db, Count) ->
    case settee:info(Db) of
        {ok, #{<<"doc_count">> := N}} when N >= Count -> {ok, N};
        {ok, _} -> written(Db, Count)
    end.

%% A process that opens a directory, and what it has.
owner(Folder) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        {Directory, Db} = opened(Folder),
        Self ! {opened, self(), Directory, Db},
        receive never -> ok end
    end),
    receive
        {opened, Pid, Directory, Db} -> {Pid, Monitor, Directory, Db}
    end.

kill({Pid, Monitor, _, _}) ->
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end.

a_directory_is_closed_with_its_owner(Folder) ->
    {_, _, Directory, Db} = Owner = owner(Folder),
    {ok, Feed} = settee:changes(Db, #{since => <<"now">>, live => true}),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"x">>}, #{delayed => true}),
    {ok, [_]} = settee:next(Feed),
    kill(Owner),
    _ = refused(closed, settee:next(Feed)),
    _ = refused(closed, settee:put(Db, #{})),
    true = settee:is_closed(Directory),
    ok = settee:close(Directory),
    {Again, Reopened} = opened(Folder),
    {ok, _} = settee:get(Reopened, <<"x">>),
    ok = settee:close(Again),
    % So it is when only a database of it is left.
    Self = self(),
    {Pid, Dropping} = spawn_monitor(fun() ->
        {_, Kept} = opened(Folder),
        erlang:garbage_collect(),
        Self ! {kept, Kept},
        receive never -> ok end
    end),
    {kept, Left} = receive {kept, _} = Sent -> Sent end,
    exit(Pid, kill),
    receive {'DOWN', Dropping, _, _, killed} -> ok end,
    until(fun() -> element(1, settee:info(Left)) =:= error end),
    % One without an owner stays open.
    {_, Monitor} = spawn_monitor(fun() -> Self ! settee:open(Folder, #{owner => none}) end),
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    {ok, Free} = receive {ok, _} = Opened -> Opened end,
    {ok, [<<"a">>]} = settee:names(Free),
    ok = settee:close(Free).

a_restarted_owner_opens_its_directory_again(Folder) ->
    % At once, as a supervisor does: others still have what the last one opened.
    Owners = [
        begin
            Owner = owner(Folder),
            kill(Owner),
            Owner
        end
     || _ <- lists:seq(1, 30)
    ],
    {_, _, Directory, _} = Last = owner(Folder),
    {ok, [<<"a">>]} = settee:names(Directory),
    [_ = refused(closed, settee:names(Old)) || {_, _, Old, _} <- Owners],
    kill(Last).

a_directory_without_references_is_closed(Folder) ->
    Self = self(),
    {_, Monitor} = spawn_monitor(fun() ->
        {ok, Directory} = settee:open(Folder, #{owner => none}),
        {ok, Db} = settee:create(Directory, <<"a">>),
        {ok, _} = settee:put(Db, #{<<"_id">> => <<"x">>}, #{delayed => true}),
        Self ! put
    end),
    receive put -> ok end,
    receive {'DOWN', Monitor, _, _, normal} -> ok end,
    % Its heap is freed some time after it ended.
    until(fun() ->
        case settee:open(Folder) of
            {ok, Directory} ->
                {ok, Db} = settee:database(Directory, <<"a">>),
                {ok, _} = settee:get(Db, <<"x">>),
                ok = settee:close(Directory),
                true;
            {error, {in_use, _}} ->
                false
        end
    end).

a_directory_is_held_by_what_was_opened_in_it(Folder) ->
    Self = self(),
    {_, Monitor} = spawn_monitor(fun() ->
        {ok, Directory} = settee:open(Folder, #{owner => none}),
        {ok, Db} = settee:create(Directory, <<"a">>),
        {ok, _} = settee:bulk(Db, [#{n => N} || N <- lists:seq(1, 3000)]),
        Self ! settee:all_docs(Db)
    end),
    receive {'DOWN', Monitor, _, _, normal} -> ok end,
    {ok, Rows} = receive Sent -> Sent end,
    erlang:garbage_collect(),
    {ok, All} = settee:to_list(Rows),
    3000 = length(All).

a_second_opener_is_refused(Folder) ->
    {Directory, Db} = opened(Folder),
    _ = refused(in_use, settee:open(Folder)),
    _ = refused(in_use, settee:open(<<Folder/binary, "/./">>)),
    "in_use" = other_node:result(open, Folder),
    % It took nothing away from who has it.
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"x">>}),
    ok = settee:close(Directory),
    "ok" = other_node:result(open, Folder),
    {Again, Reopened} = opened(Folder),
    {ok, _} = settee:get(Reopened, <<"x">>),
    ok = settee:close(Again).

closing_closes_everything(Folder) ->
    {Directory, Db} = opened(Folder),
    {ok, _} = settee:bulk(Db, [#{n => N} || N <- lists:seq(1, 3000)]),
    {ok, _} = settee:put_attachment(Db, <<"f">>, <<"x">>, binary:copy(<<"x">>, 1000000)),
    {ok, Rows} = settee:all_docs(Db),
    {ok, [_ | _]} = settee:next(Rows),
    {ok, Feed} = settee:changes(Db, #{live => true}),
    {ok, {Reader, _}} = settee:open_attachment(Db, <<"f">>, <<"x">>),
    {ok, Writer} = settee:create_attachment(Db, <<"g">>, <<"x">>),
    Self = self(),
    {ok, Last} = settee:changes(Db, #{since => <<"now">>, live => true}),
    spawn_link(fun() -> Self ! waiting, Self ! {ended, settee:next(Last)} end),
    receive waiting -> ok end,
    % Two at once: both return when it is closed.
    spawn_link(fun() -> Self ! {closed, settee:close(Directory)} end),
    ok = settee:close(Directory),
    receive {closed, ok} -> ok end,
    receive {ended, Ended} -> _ = refused(closed, Ended) end,
    [
        _ = refused(closed, Result)
     || Result <- [settee:next(Rows), settee:next(Feed), settee:read(Reader), settee:write(Writer, <<"x">>), settee:info(Db), settee:put(Db, #{})]
    ],
    {Again, Reopened} = opened(Folder),
    {ok, #{<<"doc_count">> := 3001}} = settee:info(Reopened),
    ok = settee:close(Again).

a_node_that_halts_closes(Folder) ->
    [] = other_node:result(write_and_halt, Folder),
    {Directory, Db} = opened(Folder),
    {ok, #{<<"doc_count">> := 5000}} = settee:info(Db),
    ok = settee:close(Directory).

%% With one scheduler, no process runs while a function holds it up.
large_terms_do_not_hold_up_a_scheduler(Folder) ->
    {Directory, Db} = opened(Folder),
    Large = #{<<"_id">> => <<"large">>, list => [#{n => N, text => <<"some text">>} || N <- lists:seq(1, 300000)]},
    large = settee_nif:text(Large),
    large = settee_nif:text(#{text => binary:copy(<<"x">>, 10000000)}),
    large = settee_nif:text(maps:from_list([{integer_to_binary(N), N} || N <- lists:seq(1, 100000)])),
    Ticks = atomics:new(1, []),
    Ticker = spawn_link(fun() -> tick(Ticks) end),
    Passed = fun(Call) ->
        Before = atomics:get(Ticks, 1),
        Result = Call(),
        {atomics:get(Ticks, 1) - Before, Result}
    end,
    {Converted, Text} = Passed(fun() -> settee_nif:text_dirty(Large) end),
    true = is_binary(Text),
    {Several, [_, _]} = Passed(fun() -> settee_nif:texts([Large, Large]) end),
    true = Converted > 0,
    true = Several > 0,
    {ok, {_, _}} = settee:put(Db, Large),
    {ok, #{<<"list">> := List}} = settee:get(Db, <<"large">>),
    300000 = length(List),
    Attachment = binary:copy(<<"0123456789abcdef">>, 4000000),
    {ok, {_, _}} = settee:put_attachment(Db, <<"f">>, <<"x">>, Attachment),
    {ok, {_, Attachment}} = settee:get_attachment(Db, <<"f">>, <<"x">>),
    unlink(Ticker),
    exit(Ticker, kill),
    ok = settee:close(Directory).

tick(Ticks) ->
    atomics:add(Ticks, 1, 1),
    erlang:yield(),
    tick(Ticks).

%% The library's threads go on, so it must stay where it is.
the_module_is_purged_and_loaded_again(Folder) ->
    {ok, First} = settee:open(<<Folder/binary, "/1">>),
    ok = settee:close(First),
    [
        begin
            true = code:delete(settee_nif),
            _ = code:purge(settee_nif),
            {module, settee_nif} = code:load_file(settee_nif),
            {ok, Directory} = settee:open(<<Folder/binary, "/2">>),
            {ok, Db} = settee:create(Directory, <<"a">>, #{exist_ok => true}),
            {ok, _} = settee:put(Db, #{n => N}),
            {ok, #{<<"doc_count">> := N}} = settee:info(Db),
            ok = settee:close(Directory)
        end
     || N <- lists:seq(1, 5)
    ].

cursors_that_are_dropped_leave_nothing_behind(Folder) ->
    {Directory, Db} = opened(Folder),
    {ok, _} = settee:bulk(Db, [#{<<"_id">> => integer_to_binary(N), text => binary:copy(<<"x">>, 1000)} || N <- lists:seq(1, 2000)]),
    {ok, _} = settee:put_attachment(Db, <<"f">>, <<"x">>, binary:copy(<<"x">>, 300000)),
    Use = fun(N) ->
        {ok, Rows} = settee:all_docs(Db, #{include_docs => true}),
        {ok, _} = settee:next(Rows),
        {ok, Feed} = settee:changes(Db, #{include_docs => true}),
        {ok, _} = settee:next(Feed),
        {ok, {Reader, _}} = settee:open_attachment(Db, <<"f">>, <<"x">>),
        {ok, _} = settee:read(Reader),
        {ok, Writer} = settee:create_attachment(Db, <<"g", (integer_to_binary(N))/binary>>, <<"x">>),
        ok = settee:write(Writer, <<0:80000>>)
    end,
    Times = list_to_integer(os:getenv("SETTEE_TIMES", "300")),
    in_parallel(lists:seq(1, 100), Use),
    Before = resident_bytes(),
    [in_parallel(lists:seq(N, N + 9), Use) || N <- lists:seq(101, 100 + Times, 10)],
    Grown = resident_bytes() - Before,
    % Allocators keep some of what they had.
    {true, _} = {Grown < (128 bsl 20), Grown},
    ok = settee:close(Directory).

resident_bytes() ->
    erlang:garbage_collect(),
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [KiB]} = re:run(Status, "VmRSS:\\s*(\\d+)", [{capture, all_but_first, binary}]),
    binary_to_integer(KiB) bsl 10.
