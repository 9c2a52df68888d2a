%% The Erlang package as people use it. The suite `bindings` runs this.
-module(check_erlang).

-export([main/1]).
-export([
    documents_are_written_read_and_deleted/1,
    databases_are_made_listed_and_deleted/1,
    values_keep_their_kind/1,
    what_is_not_json_is_refused_with_its_path/1,
    a_map_always_has_the_same_revision/1,
    raw_text_goes_in_and_out/1,
    bulks_return_an_outcome_for_each/1,
    bulks_take_attachments_in_pieces/1,
    listings_and_views_are_read/1,
    functions_may_throw/1,
    queries_use_indexes/1,
    changes_are_read_and_awaited/1,
    changes_are_followed/1,
    attachments_are_read_and_written/1,
    ids_ascend_and_never_repeat/1,
    wrong_arguments_are_badarg/1
]).

-import(checks, [refused/2]).

main(Wanted) ->
    checks:run(?MODULE, Wanted).

opened(Folder, Name) ->
    {ok, Directory} = settee:open(Folder),
    {ok, Db} = settee:create(Directory, Name),
    {Directory, Db}.

documents_are_written_read_and_deleted(Folder) ->
    {Directory, Db} = opened(Folder, <<"notes">>),
    % The revision that the README's tour shows for the same edit.
    Tour = <<"{\"_id\":\"r1\",\"day\":[2026,11,20],\"what\":\"tea\",\"price\":4.5}">>,
    {ok, {<<"r1">>, <<"1-27c8ea11f15ef39c3d198d01b48d3d81">> = TourRev}} = settee:put(Db, Tour),
    {ok, {<<"r1">>, <<"2-", _/binary>>}} = settee:delete(Db, <<"r1">>, TourRev),
    {ok, {<<"a">>, First}} = settee:put(Db, #{<<"_id">> => <<"a">>, text => <<"hello">>}),
    {ok, Doc} = settee:get(Db, <<"a">>),
    Doc = #{<<"_id">> => <<"a">>, <<"_rev">> => First, <<"text">> => <<"hello">>},
    <<"Document update conflict.">> = refused(conflict, settee:put(Db, #{<<"_id">> => <<"a">>})),
    {ok, {_, Second}} = settee:put(Db, Doc#{<<"text">> => <<"bye">>}),
    {ok, #{<<"text">> := <<"hello">>}} = settee:get(Db, <<"a">>, #{rev => First}),
    {ok, #{<<"_revisions">> := #{<<"start">> := 2}}} = settee:get(Db, <<"a">>, #{revs => true}),
    {ok, {<<_:32/binary>>, _}} = settee:put(Db, #{no => <<"id">>}),
    {ok, {_, <<"3-", _/binary>>}} = settee:delete(Db, <<"a">>, Second),
    <<"deleted">> = refused(not_found, settee:get(Db, <<"a">>)),
    <<"missing">> = refused(not_found, settee:get(Db, <<"never">>)),
    _ = refused(illegal_docid, settee:get(Db, <<"_x">>)),
    _ = refused(doc_validation, settee:put(Db, #{<<"_x">> => 1})),
    {ok, {_, <<"0-1">>}} = settee:put(Db, #{<<"_id">> => <<"_local/x">>, n => 1}),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"late">>}, #{delayed => true}),
    _ = refused(bad_request, settee:put(Db, #{}, #{nonsense => 1})),
    ok = settee:close(Directory).

databases_are_made_listed_and_deleted(Folder) ->
    {ok, Directory} = settee:open(Folder, #{q => 1}),
    {ok, B} = settee:create(Directory, <<"b">>),
    {ok, A} = settee:create(Directory, <<"a">>, #{q => 3, partitioned => true}),
    <<"a">> = settee:name(A),
    {ok, #{<<"q">> := 3, <<"partitioned">> := true}} = settee:info(A),
    {ok, #{<<"q">> := 1, <<"doc_count">> := 0}} = settee:info(B),
    {ok, [<<"a">>, <<"b">>]} = settee:names(Directory),
    {ok, true} = settee:has(Directory, <<"a">>),
    {ok, false} = settee:has(Directory, <<"c">>),
    _ = refused(file_exists, settee:create(Directory, <<"a">>)),
    {ok, _} = settee:create(Directory, <<"a">>, #{exist_ok => true}),
    _ = refused(illegal_database_name, settee:create(Directory, <<"A">>)),
    _ = refused(forbidden, settee:create(Directory, <<"_users">>)),
    ok = settee:delete_database(Directory, <<"b">>),
    _ = refused(not_found, settee:database(Directory, <<"b">>)),
    _ = refused(not_found, settee:info(B)),
    {ok, _} = settee:create(Directory, <<"b">>),
    {ok, #{<<"doc_count">> := 0}} = settee:info(B),
    ok = settee:compact(A),
    {ok, Tasks} = settee:tasks(Directory),
    true = is_list(Tasks),
    Folder = settee:path(Directory),
    false = settee:is_closed(Directory),
    ok = settee:close(Directory),
    true = settee:is_closed(Directory),
    ok = settee:close(Directory),
    Missing = <<Folder/binary, "/missing">>,
    _ = refused(not_found, settee:open(Missing, #{create => false})),
    false = filelib:is_file(Missing),
    _ = refused(bad_request, settee:open(Folder, #{q => <<"x">>})).

values_keep_their_kind(Folder) ->
    {Directory, Db} = opened(Folder, <<"v">>),
    Values = #{
        <<"big">> => (1 bsl 200) + 1,
        <<"negative">> => -binary_to_integer(<<"1", (binary:copy(<<"0">>, 60))/binary>>),
        <<"words">> => [0, 1, -1, 1 bsl 31, 1 bsl 63, -(1 bsl 63), (1 bsl 64) - 1, 1 bsl 64, -(1 bsl 63) - 1, 9999999999999999999, -9999999999999999999],
        <<"float">> => 1.0,
        <<"small">> => 2.2250738585072014e-308,
        <<"large">> => 1.7976931348623157e308,
        <<"text">> => <<"é😀\x{0}\"\\\n"/utf8>>,
        <<"list">> => [null, true, false, [], #{}, [[]], #{<<"a">> => []}, <<>>],
        <<>> => #{<<>> => #{<<>> => 1}, <<"é"/utf8>> => [#{}, [#{}]]}
    },
    {ok, {_, _}} = settee:put(Db, Values#{<<"_id">> => <<"a">>}),
    {ok, Doc} = settee:get(Db, <<"a">>),
    % Comparison by =:= tells 1 from 1.0.
    Values = maps:without([<<"_id">>, <<"_rev">>], Doc),
    % CouchDB too has two revisions for them.
    {ok, {_, Integer}} = settee:put(Db, #{<<"_id">> => <<"i">>, n => 1}),
    {ok, {_, Float}} = settee:put(Db, #{<<"_id">> => <<"f">>, n => 1.0}),
    true = Integer =/= Float,
    % Atoms become strings as keys, and `nil` is `null` too.
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"n">>, 'a key' => nil, b => true, c => #{d => null}}),
    {ok, #{<<"a key">> := null, <<"b">> := true, <<"c">> := #{<<"d">> := null}}} = settee:get(Db, <<"n">>),
    % The depth that a document may have, on the small stacks of schedulers.
    Deep = lists:foldl(fun(_, Inner) -> [Inner] end, [], lists:seq(1, 4000)),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"deep">>, deep => Deep}),
    {ok, #{<<"deep">> := Deep}} = settee:get(Db, <<"deep">>),
    % More keys than the smallest kind of map has.
    Wide = maps:from_list([{integer_to_binary(N), N} || N <- lists:seq(1, 5000)]),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"wide">>, wide => Wide}),
    {ok, #{<<"wide">> := Wide}} = settee:get(Db, <<"wide">>),
    ok = settee:close(Directory),
    {ok, Nil} = settee:open(Folder, #{null => nil}),
    {ok, V} = settee:database(Nil, <<"v">>),
    {ok, #{<<"a key">> := nil, <<"c">> := #{<<"d">> := nil}}} = settee:get(V, <<"n">>),
    ok = settee:close(Nil).

what_is_not_json_is_refused_with_its_path(Folder) ->
    {Directory, Db} = opened(Folder, <<"v">>),
    Refused = fun(Value) -> refused(bad_request, settee:put(Db, #{<<"_id">> => <<"n">>, a => [0, #{b => Value}]})) end,
    <<"the atom undefined is not JSON: .a[1].b">> = Refused(undefined),
    <<"a pid is not JSON: .a[1].b">> = Refused(self()),
    <<"a reference is not JSON: .a[1].b">> = Refused(make_ref()),
    <<"a fun is not JSON: .a[1].b">> = Refused(fun() -> ok end),
    <<"a tuple is not JSON: .a[1].b">> = Refused({1, 2}),
    <<"a binary that is not UTF-8 is not JSON: .a[1].b">> = Refused(<<255>>),
    <<"a bit string is not JSON: .a[1].b">> = Refused(<<1:3>>),
    <<"an improper list is not JSON: .a[1].b", _/binary>> = Refused([1 | 2]),
    <<"the key 1 is not JSON: .a[1].b">> = Refused(#{1 => 2}),
    <<"a map with the key x twice is not JSON: .a[1].b">> = Refused(#{x => 1, <<"x">> => 2}),
    <<"an integer of more than 255 bytes is not JSON: .a[1].b">> = Refused(1 bsl 3000),
    <<"a term of more than 4096 levels is not JSON: ", _/binary>> = Refused(lists:foldl(fun(_, Inner) -> [Inner] end, [], lists:seq(1, 5000))),
    _ = refused(bad_request, settee:find(Db, #{a => self()})),
    _ = refused(bad_request, settee:bulk(Db, [#{<<"_id">> => <<"n">>}, #{a => self()}])),
    _ = refused(not_found, settee:get(Db, <<"n">>)),
    ok = settee:close(Directory).

a_map_always_has_the_same_revision(Folder) ->
    {Directory, Db} = opened(Folder, <<"m">>),
    Keys = [integer_to_binary(N) || N <- lists:seq(1, 200)],
    {ok, {_, Rev}} = settee:put(Db, maps:from_list([{Key, 1} || Key <- Keys])),
    {ok, {_, Rev}} = settee:put(Db, maps:from_list([{Key, 1} || Key <- lists:reverse(Keys)])),
    {ok, {_, Rev}} = settee:put(Db, maps:from_list([{binary_to_atom(Key), 1} || Key <- Keys])),
    Members = lists:join($,, [[$", Key, "\":1"] || Key <- lists:sort(Keys)]),
    {ok, {_, Rev}} = settee:put(Db, iolist_to_binary([${, Members, $}])),
    ok = settee:close(Directory).

raw_text_goes_in_and_out(Folder) ->
    {Directory, Db} = opened(Folder, <<"raw">>),
    {ok, {_, _}} = settee:put(Db, <<"{\"_id\":\"a\",\"z\":1.0,\"big\":123456789012345678901234567890}">>),
    {ok, Text} = settee:get(Db, <<"a">>, #{raw => true}),
    true = is_binary(Text),
    {_, _} = binary:match(Text, <<"\"z\":1.0,\"big\":123456789012345678901234567890}">>),
    {ok, [{<<"c">>, {ok, _}}, {<<"d">>, {ok, _}}]} = settee:bulk(Db, [<<"{\"_id\":\"c\"}">>, #{<<"_id">> => <<"d">>}]),
    {ok, [<<"{\"id\":\"a\"", _/binary>>, _, _]} = settee:to_list(settee:all_docs(Db, #{raw => true})),
    {ok, [<<"{\"seq\"", _/binary>> | _]} = settee:to_list(settee:changes(Db, #{raw => true})),
    _ = refused(bad_request, settee:put(Db, <<"{\"_id\":\"x\"},{\"_id\":\"y\"}">>)),
    _ = refused(bad_request, settee:bulk(Db, [<<"{\"_id\":\"x\"}">>, <<"{">>])),
    _ = refused(not_found, settee:get(Db, <<"x">>)),
    ok = settee:close(Directory).

bulks_return_an_outcome_for_each(Folder) ->
    {Directory, Db} = opened(Folder, <<"bulk">>),
    Ids = [iolist_to_binary(io_lib:format("~4..0b", [N])) || N <- lists:seq(0, 999)],
    {ok, Outcomes} = settee:bulk(Db, [#{<<"_id">> => Id} || Id <- Ids]),
    Ids = [Id || {Id, {ok, <<"1-", _/binary>>}} <- Outcomes],
    {ok, [{<<"0000">>, {error, {conflict, <<"Document update conflict.">>}}}, {<<"new">>, {ok, _}}]} =
        settee:bulk(Db, [#{<<"_id">> => <<"0000">>}, #{<<"_id">> => <<"new">>}]),
    Rev = <<"7-0123456789abcdef0123456789abcdef">>,
    {ok, []} = settee:bulk(Db, [#{<<"_id">> => <<"r">>, <<"_rev">> => Rev}], #{new_edits => false}),
    {ok, #{<<"_rev">> := Rev}} = settee:get(Db, <<"r">>),
    {ok, []} = settee:bulk(Db, []),
    ok = settee:close(Directory).

bulks_take_attachments_in_pieces(Folder) ->
    {Directory, Db} = opened(Folder, <<"bulk">>),
    Large = rand:bytes(1000000),
    Pieces = fun Next(0) -> fun() -> eof end; Next(N) -> fun() -> {ok, [Large, <<N>>], Next(N - 1)} end end,
    Doc = fun(Id) -> #{<<"_id">> => Id, <<"_attachments">> => #{<<"f">> => #{content_type => <<"image/x">>}, <<"i">> => #{data => <<"aGVsbG8=">>}}} end,
    {ok, [{<<"a">>, {ok, _}}, {<<"b">>, {ok, _}}, {<<"c">>, {ok, _}}]} = settee:bulk(Db, [
        {Doc(<<"a">>), #{<<"f">> => Pieces(3)}},
        {#{<<"_id">> => <<"b">>}, #{<<"x">> => [Large, "tail"], <<"y">> => <<>>}},
        #{<<"_id">> => <<"c">>}
    ]),
    {ok, {#{content_type := <<"image/x">>, length := 3000003}, Bytes}} = settee:get_attachment(Db, <<"a">>, <<"f">>),
    Bytes = iolist_to_binary([Large, 3, Large, 2, Large, 1]),
    {ok, {_, <<"hello">>}} = settee:get_attachment(Db, <<"a">>, <<"i">>),
    {ok, {#{length := 0}, <<>>}} = settee:get_attachment(Db, <<"b">>, <<"y">>),
    % An error of a content, and an exception of one, end the bulk.
    Fails = fun() -> {ok, <<"x">>, fun() -> {error, enoent} end} end,
    {error, {content, enoent}} = settee:bulk(Db, [{Doc(<<"d">>), #{<<"f">> => <<"whole">>}}, {Doc(<<"e">>), #{<<"f">> => Fails}}]),
    {caught, given_up} =
        try
            settee:bulk(Db, [{Doc(<<"d">>), #{<<"f">> => fun() -> throw(given_up) end}}])
        catch
            throw:Thrown -> {caught, Thrown}
        end,
    _ = refused(not_found, settee:get(Db, <<"d">>)),
    _ = refused(bad_request, settee:bulk(Db, [{#{<<"_id">> => <<"_local/x">>}, #{<<"f">> => <<"x">>}}])),
    ok = settee:close(Directory).

listings_and_views_are_read(Folder) ->
    {Directory, Db} = opened(Folder, <<"views">>),
    Kind = fun(N) -> case N rem 2 of 0 -> <<"even">>; 1 -> <<"odd">> end end,
    Docs = [#{<<"_id">> => iolist_to_binary(io_lib:format("~5..0b", [N])), type => Kind(N), n => N} || N <- lists:seq(0, 4999)],
    {ok, _} = settee:bulk(Db, Docs),
    {ok, Rows} = settee:all_docs(Db),
    {ok, #{<<"total_rows">> := 5000, <<"offset">> := 0}} = settee:head(Rows),
    % A snapshot: what comes later is not in it.
    {ok, [_ | _] = Some} = settee:next(Rows),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"zzz">>, n => 0}),
    {ok, Count} = settee:fold(fun(_Row, N) -> N + 1 end, length(Some), Rows),
    5000 = Count,
    done = settee:next(Rows),
    Ids = fun(Cursor) -> {ok, List} = settee:to_list(Cursor), [maps:get(<<"id">>, Row) || Row <- List] end,
    [<<"00010">>, <<"00011">>] = Ids(settee:all_docs(Db, #{startkey => <<"00010">>, endkey => <<"00012">>, inclusive_end => false})),
    {ok, [#{<<"doc">> := #{<<"n">> := 7}}]} = settee:to_list(settee:all_docs(Db, #{key => <<"00007">>, include_docs => true})),
    {ok, [#{<<"key">> := <<"00001">>}, #{<<"key">> := <<"nope">>, <<"error">> := _}]} =
        settee:to_list(settee:all_docs(Db, #{keys => [<<"00001">>, <<"nope">>]})),
    _ = refused(bad_request, settee:all_docs(Db, #{nonsense => 1})),
    {ok, {_, _}} = settee:put(Db, #{
        <<"_id">> => <<"_design/by">>,
        views => #{
            type => #{map => <<"function (doc) { emit(doc.type, doc.n); }">>, reduce => <<"_sum">>},
            id => #{map => <<"function (doc) { emit(doc._id, null); }">>}
        }
    }),
    ok = settee:build_index(Db, <<"by">>),
    {ok, _} = settee:progress(Db, <<"by">>),
    {ok, [#{<<"key">> := null, <<"value">> := Sum}]} = settee:to_list(settee:view(Db, <<"by">>, <<"type">>)),
    Sum = 4999 * 2500,
    {ok, [#{<<"key">> := null}, #{<<"key">> := <<"even">>}, #{<<"key">> := <<"odd">>}]} =
        settee:to_list(settee:view(Db, <<"by">>, <<"type">>, #{group => true})),
    {ok, Odd} = settee:view(Db, <<"by">>, <<"type">>, #{key => <<"odd">>, reduce => false}),
    {ok, #{<<"total_rows">> := 5001}} = settee:head(Odd),
    {ok, OddRows} = settee:to_list(Odd),
    2500 = length(OddRows),
    % `null` is a key too.
    {ok, [#{<<"id">> := <<"zzz">>}]} = settee:to_list(settee:view(Db, <<"by">>, <<"type">>, #{key => null, reduce => false})),
    11 = length(Ids(settee:view(Db, <<"_design/by">>, <<"id">>, #{startkey => <<"04990">>}))),
    <<"missing_named_view">> = refused(not_found, settee:view(Db, <<"by">>, <<"nope">>)),
    _ = refused(not_found, settee:to_list(settee:view(Db, <<"nope">>, <<"x">>))),
    _ = refused(query_parse_error, settee:view(Db, <<"by">>, <<"id">>, #{group => true})),
    {ok, Closed} = settee:view(Db, <<"by">>, <<"id">>),
    ok = settee:close(Closed),
    _ = refused(closed, settee:next(Closed)),
    ok = settee:close(Directory).

functions_may_throw(Folder) ->
    {ok, Directory} = settee:open(Folder, #{functions => #{time_limit_ms => 300}}),
    {ok, Db} = settee:create(Directory, <<"f">>),
    Validate = <<"function (doc) { if (doc.own) throw(['error', 'my_word', 'own']); if (!doc.ok && !doc._deleted) throw({forbidden: 'not ok'}); }">>,
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"_design/v">>, validate_doc_update => Validate}),
    <<"not ok">> = refused(forbidden, settee:put(Db, #{<<"_id">> => <<"a">>})),
    {ok, [{<<"a">>, {error, {forbidden, <<"not ok">>}}}, {<<"b">>, {ok, _}}]} = settee:bulk(Db, [#{<<"_id">> => <<"a">>}, #{<<"_id">> => <<"b">>, ok => true}]),
    % A user's word does not become an atom, which a node would never free.
    <<"own">> = refused(<<"my_word">>, settee:put(Db, #{<<"_id">> => <<"a">>, own => true})),
    _ = refused(compilation_error, settee:put(Db, #{<<"_id">> => <<"_design/w">>, ok => 1, views => #{v => #{map => <<"function (">>}}})),
    Endless = #{map => <<"function (d) { emit(1, 1); }">>, reduce => <<"function () { for (;;) {} }">>},
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"_design/r">>, ok => 1, views => #{v => Endless}}),
    {error, {_, _}} = settee:to_list(settee:view(Db, <<"r">>, <<"v">>)),
    ok = settee:close(Directory).

queries_use_indexes(Folder) ->
    {Directory, Db} = opened(Folder, <<"find">>),
    {ok, _} = settee:bulk(Db, [#{<<"_id">> => integer_to_binary(N), n => N} || N <- lists:seq(0, 999)]),
    {ok, #{<<"result">> := <<"created">>, <<"id">> := Design}} = settee:create_index(Db, [<<"n">>], #{name => <<"by-n">>}),
    {ok, #{<<"result">> := <<"exists">>}} = settee:create_index(Db, [<<"n">>], #{name => <<"by-n">>}),
    {ok, [#{<<"name">> := <<"_all_docs">>}, #{<<"name">> := <<"by-n">>}]} = settee:indexes(Db),
    {ok, Found} = settee:find(Db, #{n => #{'$gte' => 10, '$lt' => 13}}, #{fields => [<<"n">>], sort => [<<"n">>]}),
    {ok, [#{<<"n">> := 10}, #{<<"n">> := 11}, #{<<"n">> := 12}]} = settee:to_list(Found),
    {ok, #{<<"bookmark">> := _}} = settee:tail(Found),
    {ok, #{<<"index">> := #{<<"name">> := <<"by-n">>}}} = settee:explain(Db, #{n => 1}),
    {ok, All} = settee:to_list(settee:find(Db, #{n => #{'$gte' => 0}})),
    1000 = length(All),
    {ok, [<<"{\"", _/binary>>]} = settee:to_list(settee:find(Db, #{n => 5}, #{raw => true, limit => 1})),
    {error, {_, _}} = settee:find(Db, #{n => #{'$nonsense' => 1}}),
    ok = settee:delete_index(Db, Design, <<"by-n">>),
    _ = refused(not_found, settee:delete_index(Db, Design, <<"by-n">>)),
    ok = settee:close(Directory).

changes_are_read_and_awaited(Folder) ->
    {Directory, Db} = opened(Folder, <<"changes">>),
    {ok, _} = settee:bulk(Db, [#{<<"_id">> => integer_to_binary(N), n => N} || N <- lists:seq(0, 299)]),
    {ok, Rows} = settee:to_list(settee:changes(Db, #{include_docs => true})),
    Numbers = lists:seq(0, 299),
    Numbers = lists:sort([N || #{<<"doc">> := #{<<"n">> := N}} <- Rows]),
    #{<<"seq">> := Last} = lists:last(Rows),
    {ok, []} = settee:to_list(settee:changes(Db, #{since => Last})),
    {ok, [_, _, _]} = settee:to_list(settee:changes(Db, #{limit => 3})),
    {ok, [_]} = settee:to_list(settee:changes(Db, #{doc_ids => [<<"7">>]})),
    {ok, Five} = settee:to_list(settee:changes(Db, #{selector => #{n => #{'$lt' => 5}}})),
    5 = length(Five),
    {ok, Feed} = settee:changes(Db, #{since => <<"now">>, live => true}),
    timeout = settee:next(Feed, 0),
    timeout = settee:next(Feed, 20),
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"new">>}),
    {ok, [#{<<"id">> := <<"new">>}]} = settee:next(Feed),
    {ok, Seq} = settee:last_seq(Feed),
    {ok, []} = settee:to_list(settee:changes(Db, #{since => Seq})),
    % A process that waits gets what comes, and the error of a closed feed.
    Self = self(),
    spawn_link(fun() -> Self ! {waiting, self()}, Self ! {got, settee:next(Feed)}, Self ! {got, settee:next(Feed)} end),
    receive {waiting, _} -> ok end,
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"newer">>}),
    receive {got, {ok, [#{<<"id">> := <<"newer">>}]}} -> ok end,
    ok = settee:close(Feed),
    receive {got, Closed} -> _ = refused(closed, Closed) end,
    ok = settee:close(Directory).

changes_are_followed(Folder) ->
    {Directory, Db} = opened(Folder, <<"changes">>),
    {ok, _} = settee:bulk(Db, [#{<<"_id">> => integer_to_binary(N), text => binary:copy(<<"x">>, 1000)} || N <- lists:seq(1, 1000)]),
    {ok, Follower} = settee:follow(Db, #{include_docs => true}),
    % One message at a time, until more is requested.
    First = receive {settee_changes, Follower, Changes} -> Changes end,
    true = length(First) < 1000,
    receive {settee_changes, Follower, _} -> error(unrequested) after 50 -> ok end,
    {ok, {_, _}} = settee:put(Db, #{<<"_id">> => <<"late">>}),
    Ids = followed(Follower, [Id || #{<<"id">> := Id} <- First], <<"late">>),
    1001 = length(lists:usort(Ids)),
    1001 = length(Ids),
    ok = settee:unfollow(Follower),
    false = is_process_alive(Follower),
    % A follower ends with its process, and when the directory is closed.
    Self = self(),
    Subscriber = spawn(fun() -> Self ! settee:follow(Db, #{since => <<"now">>}), receive never -> ok end end),
    Second = receive {ok, Pid} -> Pid end,
    Monitor = monitor(process, Second),
    exit(Subscriber, kill),
    receive {'DOWN', Monitor, process, Second, _} -> ok end,
    {ok, Third} = settee:follow(Db, #{since => <<"now">>}),
    ok = settee:close(Directory),
    receive {settee_end, Third, Ended} -> _ = refused(closed, Ended) end,
    _ = refused(closed, settee:follow(Db)).

followed(Follower, Ids, Last) ->
    case lists:member(Last, Ids) of
        true ->
            Ids;
        false ->
            ok = settee:more(Follower),
            receive
                {settee_changes, Follower, Changes} -> followed(Follower, Ids ++ [Id || #{<<"id">> := Id} <- Changes], Last)
            end
    end.

attachments_are_read_and_written(Folder) ->
    {Directory, Db} = opened(Folder, <<"files">>),
    {ok, {_, Rev}} = settee:put_attachment(Db, <<"a">>, <<"hello.txt">>, "hello", #{content_type => <<"text/plain">>}),
    {ok, {#{content_type := <<"text/plain">>, length := 5, digest := <<"md5-", _/binary>>}, <<"hello">>}} =
        settee:get_attachment(Db, <<"a">>, <<"hello.txt">>),
    Large = rand:bytes(3000000),
    {ok, {_, Rev2}} = settee:put_attachment(Db, <<"a">>, <<"large">>, Large, #{rev => Rev}),
    {ok, {_, Large}} = settee:get_attachment(Db, <<"a">>, <<"large">>),
    Range = binary:part(Large, 5, 4),
    {ok, {_, Range}} = settee:get_attachment(Db, <<"a">>, <<"large">>, #{start => 5, 'end' => 9}),
    {ok, {Reader, #{length := 3000000}}} = settee:open_attachment(Db, <<"a">>, <<"large">>),
    {ok, <<_, _/binary>> = Piece} = settee:read(Reader),
    true = byte_size(Piece) < 3000000,
    ok = settee:close(Reader),
    _ = refused(closed, settee:read(Reader)),
    {ok, Writer} = settee:create_attachment(Db, <<"a">>, <<"lines">>, #{rev => Rev2}),
    ok = settee:write(Writer, [["line", $\n] || _ <- lists:seq(1, 1000)]),
    ok = settee:write(Writer, fun() -> {ok, <<"last">>, fun() -> eof end} end),
    {ok, {<<"a">>, Rev3}} = settee:finish(Writer),
    {ok, {#{length := 5004}, _}} = settee:get_attachment(Db, <<"a">>, <<"lines">>),
    {ok, Dropped} = settee:create_attachment(Db, <<"a">>, <<"no">>, #{rev => Rev3}),
    ok = settee:write(Dropped, <<"x">>),
    ok = settee:close(Dropped),
    _ = refused(closed, settee:finish(Dropped)),
    _ = refused(conflict, settee:put_attachment(Db, <<"a">>, <<"x">>, <<>>, #{rev => Rev})),
    <<"Document is missing attachment">> = refused(not_found, settee:get_attachment(Db, <<"a">>, <<"no">>)),
    {ok, {_, <<"4-", _/binary>>}} = settee:delete_attachment(Db, <<"a">>, <<"large">>, Rev3),
    {ok, #{<<"_attachments">> := Left}} = settee:get(Db, <<"a">>, #{attachments => true}),
    [<<"hello.txt">>, <<"lines">>] = lists:sort(maps:keys(Left)),
    ok = settee:close(Directory).

ids_ascend_and_never_repeat(_Folder) ->
    lists:foreach(
        fun(Source) ->
            {ok, Ids} = settee:Source(<<"status/">>),
            Made = [settee:next_id(Ids) || _ <- lists:seq(1, 1000)],
            Made = lists:usort(Made),
            39 = byte_size(hd(Made)),
            Self = self(),
            [spawn_link(fun() -> Self ! {made, [settee:next_id(Ids) || _ <- lists:seq(1, 500)]} end) || _ <- lists:seq(1, 8)],
            Others = lists:append([receive {made, Some} -> Some = lists:usort(Some) end || _ <- lists:seq(1, 8)]),
            4000 = length(lists:usort(Others)),
            _ = refused(bad_request, settee:Source(<<"_x">>))
        end,
        [sequential_ids, monotonic_ids]
    ).

wrong_arguments_are_badarg(Folder) ->
    {Directory, Db} = opened(Folder, <<"a">>),
    Wrong = [
        fun() -> settee:get(Db, 1) end,
        fun() -> settee:get(Directory, <<"a">>) end,
        fun() -> settee:get(make_ref(), <<"a">>) end,
        fun() -> settee:get(Db, <<255>>) end,
        fun() -> settee:names(Db) end,
        fun() -> settee:close(Db) end,
        fun() -> settee:next(Db) end,
        fun() -> settee:open(1) end,
        fun() -> settee:open(Folder, #{owner => me}) end
    ],
    [badarg, badarg, badarg, badarg, badarg, badarg, badarg, badarg, badarg] = [reason(Call) || Call <- Wrong],
    function_clause = reason(fun() -> settee:put(Db, [1]) end),
    ok = settee:close(Directory).

reason(Call) ->
    try Call() of
        Result -> {no_error, Result}
    catch
        error:Reason -> Reason
    end.
