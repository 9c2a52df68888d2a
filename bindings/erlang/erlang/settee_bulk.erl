%% Bulks whose attachments come in pieces: contents go to the store as they are read.
-module(settee_bulk).

-export([write/3, pieces/2]).

-define(PIECE_BYTES, (256 bsl 10)).

%% Writes documents, some of which come with contents of attachments.
-spec write(settee:database(), [settee:document() | {settee:document(), #{settee:text() => settee:content()}}], binary()) ->
    {ok, [map()]} | {error, settee:error()}.
write(Db, Documents, Options) ->
    case settee_nif:call(fun(Tag) -> settee_nif:begin_bulk(Tag, Db, Options) end) of
        {ok, Bulk} ->
            try
                add_all(Bulk, Documents)
            after
                settee_nif:call(fun(Tag) -> settee_nif:close(Tag, Bulk) end)
            end;
        {error, _} = Error ->
            Error
    end.

add_all(Bulk, []) ->
    settee_nif:call(fun(Tag) -> settee_nif:bulk_commit(Tag, Bulk) end);
add_all(Bulk, [Document | Documents]) ->
    case add(Bulk, Document) of
        ok -> add_all(Bulk, Documents);
        {error, _} = Error -> Error
    end.

add(Bulk, {Document, Contents}) when is_map(Document), is_map(Contents) ->
    Key = <<"_attachments">>,
    Stubs = maps:get(Key, Document, #{}),
    Follow = maps:map(fun(Name, _Content) -> (maps:get(Name, Stubs, #{}))#{<<"follows">> => true} end, Contents),
    add(Bulk, Document#{Key => maps:merge(Stubs, Follow)}, Contents);
add(Bulk, Document) ->
    add(Bulk, Document, #{}).

add(Bulk, Document, Contents) ->
    case settee_json:documents([Document]) of
        {ok, [Text]} ->
            case settee_nif:call(fun(Tag) -> settee_nif:bulk_add(Tag, Bulk, Text) end) of
                {ok, Names} -> contents(Bulk, Names, Contents);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

contents(_Bulk, [], _Contents) ->
    ok;
contents(Bulk, [Name | Names], Contents) ->
    case Contents of
        #{Name := Content} ->
            case content(Bulk, Content) of
                ok -> contents(Bulk, Names, Contents);
                {error, _} = Error -> Error
            end;
        #{} ->
            {error, {bad_request, <<"attachment ", Name/binary, " has no content">>}}
    end.

content(Bulk, Content) ->
    Write = fun(Piece) -> settee_nif:call(fun(Tag) -> settee_nif:bulk_write(Tag, Bulk, Piece) end) end,
    case settee_nif:call(fun(Tag) -> settee_nif:bulk_begin(Tag, Bulk) end) of
        ok ->
            case pieces(Content, Write) of
                ok -> settee_nif:call(fun(Tag) -> settee_nif:bulk_end(Tag, Bulk) end);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% Calls a function with pieces of a content, until it returns an error. A content is iodata, or a function that returns
%% `{ok, Piece, NextFunction}`, `eof` or `{error, Why}`.
-spec pieces(settee:content(), fun((binary()) -> ok | {error, settee:error()})) -> ok | {error, settee:error()}.
pieces(Content, Write) when is_function(Content, 0) ->
    case Content() of
        {ok, Bytes, Next} ->
            case pieces(Bytes, Write) of
                ok -> pieces(Next, Write);
                {error, _} = Error -> Error
            end;
        eof ->
            ok;
        {error, {Code, Reason}} ->
            {error, {Code, Reason}};
        {error, Why} ->
            {error, {content, Why}}
    end;
pieces(Content, Write) ->
    binary_pieces(iolist_to_binary(Content), Write).

binary_pieces(<<>>, _Write) ->
    ok;
binary_pieces(<<Piece:?PIECE_BYTES/binary, Rest/binary>>, Write) ->
    case Write(Piece) of
        ok -> binary_pieces(Rest, Write);
        {error, _} = Error -> Error
    end;
binary_pieces(Last, Write) ->
    Write(Last).
