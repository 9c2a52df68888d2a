%% A mail server that keeps its mails in Settee, in this node: they come by SMTP, and users collect them by POP3.
%%
%%   ERL_LIBS=... erl -noshell -run mail_server main DATA SMTP_PORT POP3_PORT alice:secret bob:secret
%%
%% A mail is one document for each of its recipients, with the message as an attachment. The answer 250 to a message is sent when these
%% documents are on disk, all in one commit: a mail that a client was promised survives a crash, and is never there for only some of its
%% recipients. Each connection has a process, and all processes share the database.
%%
%% It listens on the loopback address, since it has neither TLS nor defences against spam.
-module(mail_server).

-export([start/1, stop/1, main/1]).

-define(MESSAGE_BYTES_MAX, (25 bsl 20)).
-define(LINE_BYTES_MAX, 65536).
-define(IDLE_MS, 300000).
-define(CAPABILITIES, "+OK\r\nUSER\r\nUIDL\r\n.").

-define(DESIGN, #{
    <<"_id">> => <<"_design/mail">>,
    views => #{
        box => #{map => <<"function (doc) { if (doc.type === 'mail') emit(doc.to, doc.size); }">>}
    }
}).

-type config() :: #{
    directory := file:name_all(),
    users := #{User :: binary() => Password :: binary()},
    smtp_port => inet:port_number(),
    pop3_port => inet:port_number()
}.

%% Starts the server. Ports that are not given are free ones; those in use are returned.
-spec start(config()) -> {ok, #{pid := pid(), smtp_port := inet:port_number(), pop3_port := inet:port_number()}} | {error, term()}.
start(Config) ->
    Parent = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> init(Config, Parent) end),
    receive
        {Pid, Started} ->
            demonitor(Monitor, [flush]),
            {ok, Started#{pid => Pid}};
        {'DOWN', Monitor, process, Pid, Reason} ->
            {error, Reason}
    end.

-spec stop(pid()) -> ok.
stop(Pid) ->
    Monitor = monitor(process, Pid),
    Pid ! stop,
    receive
        {'DOWN', Monitor, process, Pid, _Reason} -> ok
    end.

%% As a program: prints its ports, and runs until the node is stopped.
-spec main([string()]) -> no_return().
main([Directory, Smtp, Pop3 | Users]) ->
    Passwords = [list_to_tuple(binary:split(list_to_binary(User), <<":">>)) || User <- Users],
    {ok, #{smtp_port := SmtpPort, pop3_port := Pop3Port}} = start(#{
        directory => Directory,
        users => maps:from_list(Passwords),
        smtp_port => list_to_integer(Smtp),
        pop3_port => list_to_integer(Pop3)
    }),
    io:format("~b ~b~n", [SmtpPort, Pop3Port]),
    receive
        never -> ok
    end.

%% The process that owns the directory: when it ends, the directory is closed.
init(#{directory := Path, users := Users} = Config, Parent) ->
    {ok, Directory} = settee:open(Path),
    {ok, Db} = settee:create(Directory, <<"mails">>, #{exist_ok => true}),
    ok = put_design(Db),
    {ok, Ids} = settee:monotonic_ids(),
    State = #{db => Db, users => Users, ids => Ids},
    {SmtpPort, Smtp} = listen(maps:get(smtp_port, Config, 0), fun(Socket) -> smtp(Socket, State) end),
    {Pop3Port, Pop3} = listen(maps:get(pop3_port, Config, 0), fun(Socket) -> pop3(Socket, State) end),
    Parent ! {self(), #{smtp_port => SmtpPort, pop3_port => Pop3Port}},
    receive
        stop -> ok
    end,
    ok = gen_tcp:close(Smtp),
    ok = gen_tcp:close(Pop3),
    ok = settee:close(Directory).

put_design(Db) ->
    case settee:put(Db, ?DESIGN) of
        {ok, _} -> ok;
        {error, {conflict, _}} -> ok
    end.

listen(Port, Serve) ->
    Options = [binary, {packet, line}, {buffer, ?LINE_BYTES_MAX}, {active, false}, {reuseaddr, true}, {ip, {127, 0, 0, 1}}, {backlog, 128}],
    {ok, Listener} = gen_tcp:listen(Port, Options),
    {ok, Used} = inet:port(Listener),
    spawn_link(fun() -> accept(Listener, Serve) end),
    {Used, Listener}.

accept(Listener, Serve) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            Connection = spawn(fun() -> receive go -> serve(Socket, Serve) end end),
            ok = gen_tcp:controlling_process(Socket, Connection),
            Connection ! go,
            accept(Listener, Serve);
        {error, closed} ->
            ok
    end.

%% A connection ends by the exception `closed` when its client has gone.
serve(Socket, Serve) ->
    try
        Serve(Socket)
    catch
        throw:closed -> ok
    after
        gen_tcp:close(Socket)
    end.

send(Socket, Text) ->
    case gen_tcp:send(Socket, Text) of
        ok -> ok;
        {error, _} -> throw(closed)
    end.

reply(Socket, Text) ->
    send(Socket, [Text, "\r\n"]).

line(Socket) ->
    case gen_tcp:recv(Socket, 0, ?IDLE_MS) of
        {ok, Line} -> Line;
        {error, _} -> throw(closed)
    end.

%% A command in capitals, and the rest of its line.
command(Socket) ->
    Line = string:trim(line(Socket)),
    case binary:split(Line, <<" ">>) of
        [Command, Rest] -> {string:uppercase(Command), string:trim(Rest)};
        [Command] -> {string:uppercase(Command), <<>>}
    end.

%%% SMTP (RFC 5321)

smtp(Socket, State) ->
    reply(Socket, "220 mail_server"),
    smtp(Socket, State, no_mail()).

no_mail() ->
    #{from => none, to => []}.

smtp(Socket, State, Mail) ->
    case smtp_command(command(Socket), Socket, State, Mail) of
        {Text, Next} ->
            reply(Socket, Text),
            smtp(Socket, State, Next);
        quit ->
            reply(Socket, "221 Bye")
    end.

smtp_command({<<"HELO">>, _}, _Socket, _State, _Mail) ->
    {"250 mail_server", no_mail()};
smtp_command({<<"EHLO">>, _}, _Socket, _State, _Mail) ->
    {["250-mail_server\r\n250-8BITMIME\r\n250 SIZE ", integer_to_list(?MESSAGE_BYTES_MAX)], no_mail()};
smtp_command({<<"MAIL">>, Argument}, _Socket, _State, _Mail) ->
    case address(Argument) of
        {ok, From} -> {"250 OK", #{from => From, to => []}};
        error -> {"501 MAIL FROM:<address>", no_mail()}
    end;
smtp_command({<<"RCPT">>, _}, _Socket, _State, #{from := none} = Mail) ->
    {"503 MAIL first", Mail};
smtp_command({<<"RCPT">>, Argument}, _Socket, #{users := Users}, #{to := To} = Mail) ->
    case address(Argument) of
        {ok, Address} ->
            User = hd(binary:split(Address, <<"@">>)),
            case is_map_key(User, Users) of
                true -> {"250 OK", Mail#{to => [User | lists:delete(User, To)]}};
                false -> {"550 No such user", Mail}
            end;
        error ->
            {"501 RCPT TO:<address>", Mail}
    end;
smtp_command({<<"DATA">>, _}, _Socket, _State, #{to := []} = Mail) ->
    {"503 RCPT first", Mail};
smtp_command({<<"DATA">>, _}, Socket, State, Mail) ->
    reply(Socket, "354 End with a line of one point"),
    case message(Socket, [], 0, true) of
        {ok, Message} -> {store(State, Mail, Message), no_mail()};
        too_large -> {"552 Message too large", no_mail()}
    end;
smtp_command({<<"RSET">>, _}, _Socket, _State, _Mail) ->
    {"250 OK", no_mail()};
smtp_command({<<"NOOP">>, _}, _Socket, _State, Mail) ->
    {"250 OK", Mail};
smtp_command({<<"QUIT">>, _}, _Socket, _State, _Mail) ->
    quit;
smtp_command({_Command, _}, _Socket, _State, Mail) ->
    {"500 Unknown command", Mail}.

%% The address in angle brackets, which may be empty: reports of failures have no sender.
address(Argument) ->
    case re:run(Argument, "<([^<>]*)>", [{capture, all_but_first, binary}]) of
        {match, [Address]} ->
            case unicode:characters_to_binary(Address) of
                Text when is_binary(Text) -> {ok, Text};
                _ -> error
            end;
        nomatch ->
            error
    end.

%% Reads a message to the line of one point. Lines longer than the socket's buffer come in pieces.
message(Socket, Lines, Bytes, IsLineStart) ->
    case line(Socket) of
        <<".\r\n">> when IsLineStart, Bytes =< ?MESSAGE_BYTES_MAX -> {ok, lists:reverse(Lines)};
        <<".\r\n">> when IsLineStart -> too_large;
        <<".", Line/binary>> when IsLineStart -> message(Socket, keep(Line, Lines, Bytes), Bytes + byte_size(Line), ends(Line));
        Line -> message(Socket, keep(Line, Lines, Bytes), Bytes + byte_size(Line), ends(Line))
    end.

%% The rest of a message that is too large is read, but not kept.
keep(_Line, _Lines, Bytes) when Bytes > ?MESSAGE_BYTES_MAX -> [];
keep(Line, Lines, _Bytes) -> [Line | Lines].

ends(Line) ->
    binary:last(Line) =:= $\n.

%% Writes a mail for all of its recipients.
store(#{db := Db, ids := Ids}, #{from := From, to := To}, Message) ->
    Id = settee:next_id(Ids),
    Received = list_to_binary(calendar:system_time_to_rfc3339(erlang:system_time(second), [{offset, "Z"}])),
    Mails = [
        {
            #{
                <<"_id">> => <<User/binary, "/", Id/binary>>,
                type => <<"mail">>,
                from => From,
                to => User,
                received => Received,
                size => iolist_size(Message),
                <<"_attachments">> => #{<<"message">> => #{content_type => <<"message/rfc822">>}}
            },
            #{<<"message">> => Message}
        }
     || User <- To
    ],
    case settee:bulk(Db, Mails) of
        {ok, Outcomes} ->
            case [Reason || {_, {error, {_, Reason}}} <- Outcomes] of
                [] -> ["250 OK ", Id];
                [Reason | _] -> ["451 ", Reason]
            end;
        {error, {_, Reason}} ->
            ["451 ", Reason]
    end.

%%% POP3 (RFC 1939)

pop3(Socket, State) ->
    reply(Socket, "+OK mail_server"),
    pop3_login(Socket, State, none).

pop3_login(Socket, #{users := Users} = State, User) ->
    case command(Socket) of
        {<<"USER">>, Name} ->
            reply(Socket, "+OK"),
            pop3_login(Socket, State, Name);
        {<<"PASS">>, Password} ->
            case Users of
                #{User := Password} ->
                    {ok, Mails} = mails(State, User),
                    reply(Socket, "+OK"),
                    pop3_box(Socket, State, Mails, #{});
                #{} ->
                    reply(Socket, "-ERR Wrong name or password"),
                    pop3_login(Socket, State, none)
            end;
        {<<"CAPA">>, _} ->
            reply(Socket, ?CAPABILITIES),
            pop3_login(Socket, State, User);
        {<<"QUIT">>, _} ->
            reply(Socket, "+OK Bye");
        {_Command, _} ->
            reply(Socket, "-ERR Log in first"),
            pop3_login(Socket, State, User)
    end.

%% The mails of a user by their numbers: the box is as it was at the login.
mails(#{db := Db}, User) ->
    Rows = settee:view(Db, <<"mail">>, <<"box">>, #{key => User}),
    case settee:to_list(Rows) of
        {ok, Found} ->
            Mails = [{Id, Size} || #{<<"id">> := Id, <<"value">> := Size} <- Found],
            {ok, maps:from_list(lists:zip(lists:seq(1, length(Mails)), Mails))};
        {error, _} = Error ->
            Error
    end.

pop3_box(Socket, State, Mails, Deleted) ->
    Left = maps:without(maps:keys(Deleted), Mails),
    case command(Socket) of
        {<<"STAT">>, _} ->
            Bytes = lists:sum([Size || {_Id, Size} <- maps:values(Left)]),
            reply(Socket, io_lib:format("+OK ~b ~b", [map_size(Left), Bytes])),
            pop3_box(Socket, State, Mails, Deleted);
        {<<"LIST">>, Which} ->
            pop3_list(Socket, Left, Which, fun({_Id, Size}) -> integer_to_binary(Size) end),
            pop3_box(Socket, State, Mails, Deleted);
        {<<"UIDL">>, Which} ->
            pop3_list(Socket, Left, Which, fun({Id, _Size}) -> lists:last(binary:split(Id, <<"/">>)) end),
            pop3_box(Socket, State, Mails, Deleted);
        {<<"RETR">>, Which} ->
            with_mail(Socket, Left, Which, fun(_Number, {Id, _Size}) -> retrieve(Socket, State, Id) end),
            pop3_box(Socket, State, Mails, Deleted);
        {<<"DELE">>, Which} ->
            Added = with_mail(Socket, Left, Which, fun(Number, {Id, _Size}) ->
                reply(Socket, "+OK"),
                #{Number => Id}
            end),
            pop3_box(Socket, State, Mails, maps:merge(Deleted, Added));
        {<<"RSET">>, _} ->
            reply(Socket, "+OK"),
            pop3_box(Socket, State, Mails, #{});
        {<<"NOOP">>, _} ->
            reply(Socket, "+OK"),
            pop3_box(Socket, State, Mails, Deleted);
        {<<"CAPA">>, _} ->
            reply(Socket, ?CAPABILITIES),
            pop3_box(Socket, State, Mails, Deleted);
        {<<"QUIT">>, _} ->
            case delete(State, maps:values(Deleted)) of
                ok -> reply(Socket, "+OK Bye");
                {error, {_, Reason}} -> reply(Socket, ["-ERR ", Reason])
            end;
        {_Command, _} ->
            reply(Socket, "-ERR Unknown command"),
            pop3_box(Socket, State, Mails, Deleted)
    end.

pop3_list(Socket, Mails, <<>>, Shown) ->
    Lines = [[integer_to_list(Number), " ", Shown(Mail), "\r\n"] || {Number, Mail} <- lists:sort(maps:to_list(Mails))],
    reply(Socket, ["+OK\r\n", Lines, "."]);
pop3_list(Socket, Mails, Which, Shown) ->
    with_mail(Socket, Mails, Which, fun(Number, Mail) ->
        reply(Socket, ["+OK ", integer_to_list(Number), " ", Shown(Mail)]),
        #{}
    end).

%% Calls a function for the mail of this number; without one, replies so and returns an empty map.
with_mail(Socket, Mails, Which, Function) ->
    try binary_to_integer(Which) of
        Number when is_map_key(Number, Mails) ->
            Function(Number, map_get(Number, Mails));
        _ ->
            reply(Socket, "-ERR No such message"),
            #{}
    catch
        error:badarg ->
            reply(Socket, "-ERR Not a number"),
            #{}
    end.

retrieve(Socket, #{db := Db}, Id) ->
    case settee:get_attachment(Db, Id, <<"message">>) of
        {ok, {_Info, Message}} ->
            % Lines that begin with a point get a second one.
            Stuffed = re:replace(Message, "^\\.", "..", [global, multiline, {newline, crlf}]),
            reply(Socket, ["+OK\r\n", Stuffed, "."]);
        {error, {_, Reason}} ->
            reply(Socket, ["-ERR ", Reason])
    end,
    #{}.

%% Deletes documents in one commit. One that is gone already is no error.
delete(_State, []) ->
    ok;
delete(#{db := Db}, Ids) ->
    case settee:to_list(settee:all_docs(Db, #{keys => Ids})) of
        {ok, Rows} ->
            Stubs = [
                #{<<"_id">> => Id, <<"_rev">> => Rev, <<"_deleted">> => true}
             || #{<<"id">> := Id, <<"value">> := #{<<"rev">> := Rev} = Value} <- Rows, not is_map_key(<<"deleted">>, Value)
            ],
            case settee:bulk(Db, Stubs) of
                {ok, _} -> ok;
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.
