%% Runs users' functions in Erlang: CouchDB's query-server protocol on standard input and output.
%%
%% A function is an Erlang expression whose value is a fun, such as
%%     fun({Doc}) -> Emit(proplists:get_value(<<"_id">>, Doc), null) end.
%% It is compiled as the body of a function whose arguments are the names that such expressions may use (see names/0).
%% Objects are {[{Name, Value}]}, strings are binaries, as in CouchDB.
%%
%% All is kept in the dictionary of the one process, which also runs the functions:
%%     port       standard input and output
%%     lines      whole lines that were read and not yet handled
%%     pending    parts of the line after them, the last first
%%     maps       map functions, the last first, as {Module, Fun}
%%     reduces    [{Source, {Module, Fun}}], the last used first
%%     designs    #{Id => Design document}
%%     calls      #{{Id, Path} => {Module, Fun}}
%%     free, next names of modules to be used: atoms are never given back, so that they are used again
%%     emitted    what the function that runs has emitted, the last first
%%     list       state of the list function that runs
-module(settee_query_server).

-export([main/0, encode/1, decode/1]).

-define(REDUCES_MAX, 16).
-define(TEXT_MAX, 4000).

main() ->
    spawn(fun() ->
        try
            put(port, open_port({fd, 0, 1}, [binary, stream, eof])),
            %% What functions print must not get among the answers.
            group_leader(whereis(standard_error), self()),
            put(lines, []),
            put(pending, []),
            put(maps, []),
            put(reduces, []),
            put(designs, #{}),
            put(calls, #{}),
            put(free, []),
            put(next, 1),
            loop()
        catch
            Class:Reason:Stack ->
                io:format(standard_error, "~ts~n", [text({Class, Reason, Stack})]),
                halt(1)
        end
    end).

loop() ->
    answer(handle(decode(next_line()))),
    loop().

next_line() ->
    case get(lines) of
        [Line | Lines] ->
            put(lines, Lines),
            Line;
        [] ->
            Port = get(port),
            receive
                {Port, {data, Data}} ->
                    case binary:split(Data, <<"\n">>, [global]) of
                        [Part] ->
                            put(pending, [Part | get(pending)]);
                        [Part | Rest] ->
                            First = iolist_to_binary(lists:reverse(get(pending), [Part])),
                            {Whole, [Last]} = lists:split(length(Rest) - 1, Rest),
                            put(lines, [First | Whole]),
                            put(pending, [Last])
                    end,
                    next_line();
                {Port, eof} ->
                    halt(0)
            end
    end.

answer(Json) -> port_command(get(port), [Json, $\n]).

%% Commands. Each gives its answer as JSON text.

handle(Command) ->
    try
        command(Command)
    catch
        throw:{failed, Name, Reason} -> failed(Name, Reason);
        Class:Reason:Stack -> failed(<<"runtime_error">>, text({Class, Reason, where(Stack)}))
    end.

failed(Name, Reason) -> encode([<<"error">>, Name, Reason]).

command([<<"reset">> | _]) ->
    forget([Made || Made <- get(maps)] ++ [Made || {_, Made} <- get(reduces)]),
    put(maps, []),
    put(reduces, []),
    erlang:garbage_collect(),
    <<"true">>;
command([<<"add_lib">>, _]) ->
    %% Libraries are of JavaScript: a design document may have one all the same.
    <<"true">>;
command([<<"add_fun">>, Source]) ->
    put(maps, [make(Source, null) | get(maps)]),
    <<"true">>;
command([<<"map_doc">>, Doc]) ->
    array([map(Fun, Doc) || {_, Fun} <- lists:reverse(get(maps))]);
command([<<"reduce">>, Sources, Rows]) ->
    Keys = [Key || [Key, _] <- Rows],
    Values = [Value || [_, Value] <- Rows],
    reduce(Sources, Keys, Values, false);
command([<<"rereduce">>, Sources, Values]) ->
    reduce(Sources, null, Values, true);
command([<<"ddoc">>, <<"new">>, Id, DDoc]) ->
    {Old, Kept} = lists:partition(fun({{Of, _}, _}) -> Of =:= Id end, maps:to_list(get(calls))),
    forget([Made || {_, Made} <- Old]),
    put(calls, maps:from_list(Kept)),
    put(designs, maps:put(Id, DDoc, get(designs))),
    <<"true">>;
command([<<"ddoc">>, Id, Path, Args]) ->
    call(Path, design_fun(Id, Path), Args);
command([Name | _]) ->
    failed(<<"unknown_command">>, text(Name)).

%% A document that a function fails for gives no rows.
map(Fun, Doc) ->
    put(emitted, []),
    try
        Fun(Doc),
        encode(lists:reverse(get(emitted)))
    catch
        Class:Reason:Stack ->
            log(text({Class, Reason, where(Stack)})),
            <<"[]">>
    end.

reduce(Sources, Keys, Values, Rereduce) ->
    [<<"[true,">>, array([encode((reduce_fun(Source))(Keys, Values, Rereduce)) || Source <- Sources]), $]].

reduce_fun(Source) ->
    case lists:keytake(Source, 1, get(reduces)) of
        {value, {_, {_, Fun}} = Found, Others} ->
            put(reduces, [Found | Others]),
            Fun;
        false ->
            {_, Fun} = Made = make(Source, null),
            {Kept, Dropped} = split_at(?REDUCES_MAX - 1, get(reduces)),
            forget([Old || {_, Old} <- Dropped]),
            put(reduces, [{Source, Made} | Kept]),
            Fun
    end.

split_at(N, List) when length(List) =< N -> {List, []};
split_at(N, List) -> lists:split(N, List).

%% Functions of design documents.

design_fun(Id, Path) ->
    case maps:find({Id, Path}, get(calls)) of
        {ok, {_, Fun}} ->
            Fun;
        error ->
            DDoc =
                case maps:find(Id, get(designs)) of
                    {ok, Found} -> Found;
                    error -> throw({failed, <<"query_protocol_error">>, <<"uncached design doc: ", Id/binary>>})
                end,
            Source = lists:foldl(
                fun
                    (Name, {Props}) ->
                        case lists:keyfind(Name, 1, Props) of
                            {_, Value} -> Value;
                            false -> missing(Path)
                        end;
                    (_, _) ->
                        missing(Path)
                end,
                DDoc,
                Path
            ),
            is_binary(Source) orelse throw({failed, <<"malformed_ddoc">>, <<"a function must be a string">>}),
            {_, Fun} = Made = make(Source, DDoc),
            put(calls, maps:put({Id, Path}, Made, get(calls))),
            Fun
    end.

missing(Path) ->
    Where = lists:join(<<".">>, Path),
    throw({failed, <<"not_found">>, iolist_to_binary([<<"missing function ">>, Where, <<" on design doc">>])}).

call([<<"validate_doc_update">>], Fun, Args) ->
    case outcome(Fun, Args) of
        {[{Kind, Reason}]} when Kind =:= <<"forbidden">>; Kind =:= <<"unauthorized">> -> encode({[{Kind, Reason}]});
        Passed when Passed =:= ok; Passed =:= true; Passed =:= 1 -> <<"1">>;
        Other -> encode(Other)
    end;
call([<<"filters">> | _], Fun, [Docs, Req]) ->
    passes(fun(Doc) -> apply(Fun, [Doc, Req]) =:= true end, Docs);
call([<<"views">> | _], Fun, [Docs]) ->
    passes(
        fun(Doc) ->
            put(emitted, []),
            Fun(Doc) =:= true orelse get(emitted) =/= []
        end,
        Docs
    );
call([<<"shows">> | _], Fun, Args) ->
    case outcome(Fun, Args) of
        Answer when is_list(Answer) -> encode(Answer);
        Response -> encode([<<"resp">>, response(Response)])
    end;
call([<<"updates">> | _], Fun, Args) ->
    case outcome(Fun, Args) of
        [Doc, Response] -> encode([<<"up">>, Doc, response(Response)]);
        {[{_, _}]} = Refusal -> encode(Refusal);
        _ -> failed(<<"update_error">>, <<"an update function must return [Doc, Response]">>)
    end;
call([<<"rewrites">>], Fun, Args) ->
    case outcome(Fun, Args) of
        {[{Kind, _}]} = Refusal when Kind =:= <<"forbidden">>; Kind =:= <<"unauthorized">> -> encode(Refusal);
        {_} = Rewrite -> encode([<<"ok">>, Rewrite]);
        Other -> encode(Other)
    end;
call([<<"lists">> | _], Fun, Args) ->
    put(list, #{headers => {[{<<"headers">>, {[]}}]}, chunks => [], started => false, ended => false}),
    Tail = apply(Fun, Args),
    maps:get(started, get(list)) orelse get_row(),
    send_chunk(Tail),
    encode([<<"end">>, take_chunks()]);
call([Kind | _], _, _) ->
    failed(<<"unknown_command">>, text(Kind)).

%% What a function returns; what it refuses with may be thrown as well.
outcome(Fun, Args) ->
    try
        apply(Fun, Args)
    catch
        throw:{forbidden, Reason} -> {[{<<"forbidden">>, Reason}]};
        throw:{unauthorized, Reason} -> {[{<<"unauthorized">>, Reason}]};
        throw:{[{_, _}]} = Refusal -> Refusal
    end.

passes(Test, Docs) ->
    Passes = [
        try
            Test(Doc)
        catch
            Class:Reason:Stack ->
                log(text({Class, Reason, where(Stack)})),
                false
        end
     || Doc <- Docs
    ],
    encode([true, Passes]).

response(Body) when is_binary(Body) -> {[{<<"body">>, Body}]};
response(Response) -> Response.

%% Lists. A list function asks for a row by answering what came before it.

get_row() ->
    #{started := Started, ended := Ended, headers := Headers} = List = get(list),
    case Ended of
        true ->
            nil;
        false ->
            put(list, List#{started := true}),
            case Started of
                false -> answer(encode([<<"start">>, take_chunks(), Headers]));
                true -> answer(encode([<<"chunks">>, take_chunks()]))
            end,
            case decode(next_line()) of
                [<<"list_row">>, Row] ->
                    Row;
                [<<"list_end">>] ->
                    put(list, (get(list))#{ended := true}),
                    nil;
                _ ->
                    throw({failed, <<"list_error">>, <<"not a row">>})
            end
    end.

take_chunks() ->
    #{chunks := Chunks} = List = get(list),
    put(list, List#{chunks := []}),
    lists:reverse(Chunks).

%% What is no text, as the result of a fold at the end of a function, is left out.
send_chunk(Chunk) when is_binary(Chunk); is_list(Chunk) ->
    case catch unicode:characters_to_binary(Chunk) of
        Text when is_binary(Text) ->
            #{chunks := Chunks} = List = get(list),
            put(list, List#{chunks := [Text | Chunks]}),
            ok;
        _ ->
            ok
    end;
send_chunk(_) ->
    ok.

fold_rows(Fun, Acc) ->
    case get_row() of
        nil ->
            {ok, Acc};
        Row ->
            case Fun(Row, Acc) of
                {ok, Next} -> fold_rows(Fun, Next);
                {stop, Last} -> {ok, Last}
            end
    end.

%% Making functions of sources.

names() -> ['Emit', 'Log', 'Start', 'Send', 'GetRow', 'FoldRows', 'DDoc'].

bindings(DDoc) ->
    [
        fun(Key, Value) ->
            put(emitted, [[Key, Value] | get(emitted)]),
            ok
        end,
        fun(Message) -> log(Message) end,
        fun(Headers) ->
            put(list, (get(list))#{headers := Headers}),
            ok
        end,
        fun send_chunk/1,
        fun get_row/0,
        fun fold_rows/2,
        DDoc
    ].

make(Source, DDoc) ->
    Expression = parse(Source),
    Module = free_module(),
    Forms = [
        {attribute, 1, module, Module},
        {attribute, 1, export, [{make, length(names())}]},
        {function, 1, make, length(names()), [{clause, 1, [{var, 1, Name} || Name <- names()], [], [Expression]}]}
    ],
    try
        Code =
            case compile:forms(Forms, [binary, return_errors, nowarn_unused_vars, nowarn_shadow_vars]) of
                {ok, _, Binary} -> Binary;
                {ok, _, Binary, _} -> Binary;
                {error, [{_, [Problem | _]} | _], _} -> uncompiled(Problem)
            end,
        {module, Module} = code:load_binary(Module, "function", Code),
        case apply(Module, make, bindings(DDoc)) of
            Fun when is_function(Fun) -> {Module, Fun};
            _ -> throw({failed, <<"compilation_error">>, <<"Expression does not eval to a function.">>})
        end
    catch
        Class:Reason:Stack ->
            forget([{Module, none}]),
            erlang:raise(Class, Reason, Stack)
    end.

parse(Source) ->
    case erl_scan:string(unicode:characters_to_list(Source)) of
        {ok, Tokens, End} ->
            Whole =
                case Tokens =/= [] andalso lists:last(Tokens) of
                    {dot, _} -> Tokens;
                    _ -> Tokens ++ [{dot, End}]
                end,
            case erl_parse:parse_exprs(Whole) of
                {ok, [Expression]} -> Expression;
                {ok, _} -> throw({failed, <<"compilation_error">>, <<"more than one expression">>});
                {error, Problem} -> uncompiled(Problem)
            end;
        {error, Problem, _} ->
            uncompiled(Problem)
    end.

uncompiled({none, Module, What}) ->
    throw({failed, <<"compilation_error">>, unicode:characters_to_binary(Module:format_error(What))});
uncompiled({Where, Module, What}) ->
    Line =
        case Where of
            {L, _} -> L;
            L -> L
        end,
    Text = io_lib:format("line ~w: ~ts", [Line, Module:format_error(What)]),
    throw({failed, <<"compilation_error">>, unicode:characters_to_binary(Text)}).

free_module() ->
    case get(free) of
        [Module | Others] ->
            put(free, Others),
            Module;
        [] ->
            Number = get(next),
            put(next, Number + 1),
            list_to_atom("settee_function_" ++ integer_to_list(Number))
    end.

forget(Made) ->
    [
        begin
            code:delete(Module),
            %% Not a hard purge: that would kill this process should a fun of the module be held somewhere.
            case code:soft_purge(Module) of
                true -> put(free, [Module | get(free)]);
                false -> lost
            end
        end
     || {Module, _} <- Made
    ].

%% Log lines and texts of errors.

log(Message) ->
    Text =
        case is_list(Message) andalso catch_binary(Message) of
            Binary when is_binary(Binary) -> Binary;
            _ when is_binary(Message) -> Message;
            _ -> text(Message)
        end,
    answer(encode([<<"log">>, Text])),
    ok.

catch_binary(Chars) ->
    try
        unicode:characters_to_binary(Chars)
    catch
        _:_ -> false
    end.

text(Term) ->
    unicode:characters_to_binary(io_lib:format("~0tp", [Term], [{chars_limit, ?TEXT_MAX}])).

%% The top of the stack is enough, without the values of arguments.
where([{Module, Function, Args, _} | _]) when is_list(Args) -> {Module, Function, length(Args)};
where([{Module, Function, Arity, _} | _]) -> {Module, Function, Arity};
where(_) -> unknown.

%% JSON, written.

encode(Value) when is_binary(Value) -> string(Value);
encode(null) -> <<"null">>;
encode(true) -> <<"true">>;
encode(false) -> <<"false">>;
encode(Value) when is_atom(Value) -> string(atom_to_binary(Value, utf8));
encode(Value) when is_integer(Value) -> integer_to_binary(Value);
encode(Value) when is_float(Value) -> float_text(Value);
encode({Props}) when is_list(Props) -> object(Props);
encode(Map) when is_map(Map) -> object(maps:to_list(Map));
encode([]) -> <<"[]">>;
encode([First | Rest]) -> [$[, encode(First), elements(Rest)];
encode(Other) -> error({not_json, Other}).

%% The fewest digits that read back as the same number; older releases have it only in formats.
-if(?OTP_RELEASE >= 25).
float_text(Value) -> float_to_binary(Value, [short]).
-else.
float_text(Value) -> io_lib:format("~w", [Value]).
-endif.

elements([]) -> [$]];
elements([Value | Rest]) -> [$,, encode(Value) | elements(Rest)].

array(Texts) -> [$[, lists:join($,, Texts), $]].

object([]) -> <<"{}">>;
object([First | Rest]) -> [${, member(First), [[$,, member(Member)] || Member <- Rest], $}].

member({Name, Value}) -> [string(name(Name)), $:, encode(Value)].

name(Name) when is_binary(Name) -> Name;
name(Name) when is_atom(Name) -> atom_to_binary(Name, utf8);
name(Name) when is_integer(Name) -> integer_to_binary(Name);
name(Name) when is_list(Name) -> unicode:characters_to_binary(Name).

string(Text) -> [$", escape(Text, Text, 0, 0), $"].

%% Bytes Skip to Skip + Length of Whole are looked at, and written as they are.
escape(<<C, Rest/binary>>, Whole, Skip, Length) when C >= 32, C < 128, C =/= $", C =/= $\\ ->
    escape(Rest, Whole, Skip, Length + 1);
escape(<<C/utf8, Rest/binary>>, Whole, Skip, Length) when C >= 128 ->
    escape(Rest, Whole, Skip, Length + utf8_bytes(C));
escape(<<C, Rest/binary>>, Whole, Skip, Length) ->
    [binary_part(Whole, Skip, Length), escaped(C) | escape(Rest, Whole, Skip + Length + 1, 0)];
escape(<<>>, Whole, 0, _) ->
    [Whole];
escape(<<>>, Whole, Skip, Length) ->
    [binary_part(Whole, Skip, Length)].

utf8_bytes(C) when C < 16#800 -> 2;
utf8_bytes(C) when C < 16#10000 -> 3;
utf8_bytes(_) -> 4.

escaped($") -> <<"\\\"">>;
escaped($\\) -> <<"\\\\">>;
escaped($\n) -> <<"\\n">>;
escaped($\r) -> <<"\\r">>;
escaped($\t) -> <<"\\t">>;
escaped(C) when C < 32 -> io_lib:format("\\u~4.16.0b", [C]);
%% No UTF-8.
escaped(_) -> <<"\\ufffd">>.

%% JSON, read: what is to come is matched byte by byte in tail calls alone, so that no rest of the text is made a term of its
%% own. Whole is the text and At the place in it, for cutting strings and numbers out. Stack holds what is open around a
%% value: {array, Values so far}, {object, Members so far}, {name, Members so far} around a name, {member, Name, Members so
%% far} around its value.

-define(IS_SPACE(C), C =:= $\s; C =:= $\t; C =:= $\r; C =:= $\n).

decode(Text) -> value(Text, Text, 0, []).

value(<<$", Rest/bits>>, Whole, At, Stack) ->
    text(Rest, Whole, At + 1, 0, Stack);
value(<<${, Rest/bits>>, Whole, At, Stack) ->
    first_member(Rest, Whole, At + 1, Stack);
value(<<$[, Rest/bits>>, Whole, At, Stack) ->
    first_element(Rest, Whole, At + 1, Stack);
value(<<C, _/bits>> = Text, Whole, At, Stack) when C =:= $-; C >= $0, C =< $9 ->
    number(Text, Whole, At, 0, Stack);
value(<<"null", Rest/bits>>, Whole, At, Stack) ->
    next(Rest, Whole, At + 4, Stack, null);
value(<<"true", Rest/bits>>, Whole, At, Stack) ->
    next(Rest, Whole, At + 4, Stack, true);
value(<<"false", Rest/bits>>, Whole, At, Stack) ->
    next(Rest, Whole, At + 5, Stack, false);
value(<<C, Rest/bits>>, Whole, At, Stack) when ?IS_SPACE(C) ->
    value(Rest, Whole, At + 1, Stack).

first_element(<<$], Rest/bits>>, Whole, At, Stack) ->
    next(Rest, Whole, At + 1, Stack, []);
first_element(<<C, Rest/bits>>, Whole, At, Stack) when ?IS_SPACE(C) ->
    first_element(Rest, Whole, At + 1, Stack);
first_element(Text, Whole, At, Stack) ->
    value(Text, Whole, At, [{array, []} | Stack]).

first_member(<<$}, Rest/bits>>, Whole, At, Stack) ->
    next(Rest, Whole, At + 1, Stack, {[]});
first_member(<<C, Rest/bits>>, Whole, At, Stack) when ?IS_SPACE(C) ->
    first_member(Rest, Whole, At + 1, Stack);
first_member(Text, Whole, At, Stack) ->
    member(Text, Whole, At, [], Stack).

member(<<$", Rest/bits>>, Whole, At, Members, Stack) ->
    text(Rest, Whole, At + 1, 0, [{name, Members} | Stack]);
member(<<C, Rest/bits>>, Whole, At, Members, Stack) when ?IS_SPACE(C) ->
    member(Rest, Whole, At + 1, Members, Stack).

%% After a value, or the name of a member.
next(<<$,, Rest/bits>>, Whole, At, [{member, Name, Members} | Stack], Value) ->
    member(Rest, Whole, At + 1, [{Name, Value} | Members], Stack);
next(<<$:, Rest/bits>>, Whole, At, [{name, Members} | Stack], Name) ->
    value(Rest, Whole, At + 1, [{member, Name, Members} | Stack]);
next(<<$,, Rest/bits>>, Whole, At, [{array, Values} | Stack], Value) ->
    value(Rest, Whole, At + 1, [{array, [Value | Values]} | Stack]);
next(<<$}, Rest/bits>>, Whole, At, [{member, Name, Members} | Stack], Value) ->
    next(Rest, Whole, At + 1, Stack, {lists:reverse(Members, [{Name, Value}])});
next(<<$], Rest/bits>>, Whole, At, [{array, Values} | Stack], Value) ->
    next(Rest, Whole, At + 1, Stack, lists:reverse(Values, [Value]));
next(<<C, Rest/bits>>, Whole, At, Stack, Value) when ?IS_SPACE(C) ->
    next(Rest, Whole, At + 1, Stack, Value);
next(<<>>, _, _, [], Value) ->
    Value.

%% Most strings have no escapes: they stay parts of the text.
text(<<$", Rest/bits>>, Whole, At, Length, Stack) ->
    next(Rest, Whole, At + Length + 1, Stack, binary_part(Whole, At, Length));
text(<<$\\, Rest/bits>>, Whole, At, Length, Stack) ->
    unescape(Rest, Whole, At + Length + 1, Stack, [binary_part(Whole, At, Length)]);
text(<<_, Rest/bits>>, Whole, At, Length, Stack) ->
    text(Rest, Whole, At, Length + 1, Stack).

%% After a backslash; Parts are what the string has so far, the last first.
unescape(<<$u, Digits:4/binary, Rest/bits>>, Whole, At, Stack, Parts) ->
    unit(binary_to_integer(Digits, 16), Rest, Whole, At + 5, Stack, Parts);
unescape(<<C, Rest/bits>>, Whole, At, Stack, Parts) ->
    plain(Rest, Whole, At + 1, 0, Stack, [unescaped(C) | Parts]).

%% Bytes At to At + Length are as they are.
plain(<<$", Rest/bits>>, Whole, At, Length, Stack, Parts) ->
    Text = iolist_to_binary(lists:reverse(Parts, [binary_part(Whole, At, Length)])),
    next(Rest, Whole, At + Length + 1, Stack, Text);
plain(<<$\\, Rest/bits>>, Whole, At, Length, Stack, Parts) ->
    unescape(Rest, Whole, At + Length + 1, Stack, [binary_part(Whole, At, Length) | Parts]);
plain(<<_, Rest/bits>>, Whole, At, Length, Stack, Parts) ->
    plain(Rest, Whole, At, Length + 1, Stack, Parts).

%% A half of a pair without the other is U+FFFD.
unit(High, <<"\\u", Digits:4/binary, Rest/bits>>, Whole, At, Stack, Parts) when High >= 16#D800, High < 16#DC00 ->
    case binary_to_integer(Digits, 16) of
        Low when Low >= 16#DC00, Low < 16#E000 ->
            C = 16#10000 + ((High - 16#D800) bsl 10) + (Low - 16#DC00),
            plain(Rest, Whole, At + 6, 0, Stack, [<<C/utf8>> | Parts]);
        Other ->
            unit(Other, Rest, Whole, At + 6, Stack, [<<16#FFFD/utf8>> | Parts])
    end;
unit(Half, Rest, Whole, At, Stack, Parts) when Half >= 16#D800, Half < 16#E000 ->
    plain(Rest, Whole, At, 0, Stack, [<<16#FFFD/utf8>> | Parts]);
unit(C, Rest, Whole, At, Stack, Parts) ->
    plain(Rest, Whole, At, 0, Stack, [<<C/utf8>> | Parts]).

unescaped($n) -> $\n;
unescaped($r) -> $\r;
unescaped($t) -> $\t;
unescaped($b) -> $\b;
unescaped($f) -> $\f;
unescaped(C) -> C.

number(<<C, Rest/bits>>, Whole, At, Length, Stack) when C >= $0, C =< $9; C =:= $- ->
    number(Rest, Whole, At, Length + 1, Stack);
number(<<C, Rest/bits>>, Whole, At, Length, Stack) when C =:= $. ->
    float(Rest, Whole, At, Length + 1, Stack);
number(<<C, Rest/bits>>, Whole, At, Length, Stack) when C =:= $e; C =:= $E ->
    %% Erlang wants a fraction before the exponent.
    exponent(Rest, Whole, At + Length, 1, Stack, [binary_part(Whole, At, Length), ".0"]);
number(Rest, Whole, At, Length, Stack) ->
    next(Rest, Whole, At + Length, Stack, binary_to_integer(binary_part(Whole, At, Length))).

float(<<C, Rest/bits>>, Whole, At, Length, Stack) when C >= $0, C =< $9; C =:= $e; C =:= $E; C =:= $-; C =:= $+ ->
    float(Rest, Whole, At, Length + 1, Stack);
float(Rest, Whole, At, Length, Stack) ->
    next(Rest, Whole, At + Length, Stack, binary_to_float(binary_part(Whole, At, Length))).

exponent(<<C, Rest/bits>>, Whole, At, Length, Stack, Before) when C >= $0, C =< $9; C =:= $-; C =:= $+ ->
    exponent(Rest, Whole, At, Length + 1, Stack, Before);
exponent(Rest, Whole, At, Length, Stack, Before) ->
    Digits = iolist_to_binary([Before, binary_part(Whole, At, Length)]),
    next(Rest, Whole, At + Length, Stack, binary_to_float(Digits)).
