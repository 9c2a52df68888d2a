%% Settee's databases in this node: documents, views, queries, changes and attachments, without a server.
%%
%% Functions return `{ok, Value}` or `ok`, and `{error, {Code, Reason}}`: an atom with CouchDB's word (`not_found`, `conflict`), and a
%% sentence. The code is a binary if a function of a design document chose it. Wrong types of arguments are a `badarg`.
%%
%% Documents are maps. Keys are binaries, or atoms when written; strings are binaries; JSON's `null` is the atom `null`. A binary is taken
%% for JSON text, and with `raw => true` documents and rows are returned as JSON text.
%%
%% A call blocks only its process. All handles can be used by any process.
-module(settee).

%% Directories.
-export([open/1, open/2, close/1, is_closed/1, path/1, names/1, has/2, create/2, create/3, database/2, delete_database/2, tasks/1, version/0]).
%% Documents.
-export([name/1, info/1, compact/1, get/2, get/3, put/2, put/3, delete/3, delete/4, bulk/2, bulk/3]).
%% Listings, views and queries.
-export([all_docs/1, all_docs/2, view/3, view/4, build_index/2, progress/2]).
-export([find/2, find/3, explain/2, explain/3, indexes/1, create_index/2, create_index/3, delete_index/3]).
-export([next/1, next/2, to_list/1, fold/3, head/1, tail/1]).
%% Changes.
-export([changes/1, changes/2, last_seq/1, follow/1, follow/2, more/1, unfollow/1]).
%% Attachments.
-export([get_attachment/3, get_attachment/4, open_attachment/3, open_attachment/4, read/1]).
-export([put_attachment/4, put_attachment/5, create_attachment/3, create_attachment/4, write/2, finish/1, delete_attachment/4]).
%% Ids.
-export([sequential_ids/0, sequential_ids/1, monotonic_ids/0, monotonic_ids/1, next_id/1]).

-export_type([error/0, result/1, directory/0, database/0, rows/0, feed/0, reader/0, writer/0, ids/0]).
-export_type([text/0, json/0, document/0, content/0, options/0, written/0, outcome/0, attachment_info/0]).

-type error() :: {Code :: atom() | binary(), Reason :: binary()}.
-type result(Value) :: {ok, Value} | {error, error()}.
-opaque directory() :: reference().
-opaque database() :: reference().
-opaque rows() :: reference().
-opaque feed() :: reference().
-opaque reader() :: reference().
-opaque writer() :: reference().
-opaque ids() :: reference().
%% UTF-8.
-type text() :: binary().
-type json() :: null | boolean() | number() | text() | [json()] | #{text() => json()}.
%% A map, or JSON text.
-type document() :: #{text() | atom() => term()} | text().
%% Bytes of an attachment, or a function that returns them in pieces.
-type content() :: iodata() | fun(() -> {ok, iodata(), content()} | eof | {error, term()}).
%% Options have the names of CouchDB's parameters.
-type options() :: #{atom() => term()}.
-type written() :: {Id :: text(), Rev :: text()}.
-type outcome() :: {Id :: text(), {ok, Rev :: text()} | {error, error()}}.
-type attachment_info() :: #{content_type := text(), length := non_neg_integer(), digest := text()}.

-define(CALL(Start), settee_nif:call(fun(Tag) -> Start end)).

%%% Directories

-spec open(file:name_all()) -> result(directory()).
open(Path) ->
    open(Path, #{}).

%% Opens a directory of databases, and creates it if it does not exist. It is closed by `close/1`, when its owner ends, or when no process
%% has it any more. `in_use`: it is open already, in this node or another process. An owner that has ended no longer counts: its
%% directory is closed first.
%%
%% `owner`: a process, the calling one by default, or `none`. `null`: `null`, or another atom that stands for it in documents that are
%% read, such as `nil`. Others are of the database: `create`, `q`, `cache_bytes`, `documents_bytes`, `write_buffers_bytes`,
%% `index_builds_bytes`, `index_rows_bytes`, `background_indexing`, `auto_compact`, `accept_damaged_log`, `functions` (a map with
%% `program`, `time_limit_ms`, `memory_limit_bytes`).
-spec open(file:name_all(), options()) -> result(directory()).
open(Path, Options) when is_map(Options) ->
    Owner = maps:get(owner, Options, self()),
    Null = maps:get(null, Options, null),
    Name = path_text(Path),
    (is_pid(Owner) andalso node(Owner) =:= node()) orelse Owner =:= none orelse error(badarg),
    with_options(Options, [owner, null], fun(Text) -> ?CALL(settee_nif:open(Tag, Name, Text, Owner, Null)) end).

path_text(Path) ->
    case unicode:characters_to_binary(Path) of
        Text when is_binary(Text), Text =/= <<>> -> Text;
        _ -> error(badarg)
    end.

%% Closes a directory with everything that was opened in it, after it has written queued changes; or lets go of rows, a feed, a reader or
%% a writer. A writer that is not finished leaves nothing. A second call does nothing.
-spec close(directory() | rows() | feed() | reader() | writer()) -> ok | {error, error()}.
close(Handle) ->
    ?CALL(settee_nif:close(Tag, Handle)).

-spec is_closed(directory()) -> boolean().
is_closed(Directory) ->
    settee_nif:is_closed(Directory).

-spec path(directory()) -> text().
path(Directory) ->
    settee_nif:path(Directory).

%% Names of databases in their order.
-spec names(directory()) -> result([text()]).
names(Directory) ->
    ?CALL(settee_nif:names(Tag, Directory)).

-spec has(directory(), text()) -> result(boolean()).
has(Directory, Name) ->
    ?CALL(settee_nif:has(Tag, Directory, Name)).

-spec create(directory(), text()) -> result(database()).
create(Directory, Name) ->
    create(Directory, Name, #{}).

%% Makes a database; `file_exists` if it exists already, unless `exist_ok`. Others: `q`, `partitioned`.
-spec create(directory(), text(), options()) -> result(database()).
create(Directory, Name, Options) when is_map(Options) ->
    Create = fun(Text) -> ?CALL(settee_nif:create(Tag, Directory, Name, Text)) end,
    case with_options(Options, [exist_ok], Create) of
        {error, {file_exists, _}} when map_get(exist_ok, Options) -> database(Directory, Name);
        Result -> Result
    end.

-spec database(directory(), text()) -> result(database()).
database(Directory, Name) ->
    ?CALL(settee_nif:database(Tag, Directory, Name)).

-spec delete_database(directory(), text()) -> ok | {error, error()}.
delete_database(Directory, Name) ->
    ?CALL(settee_nif:delete_database(Tag, Directory, Name)).

%% Compactions and index builds under way, as of `/_active_tasks`.
-spec tasks(directory()) -> result([#{text() => json()}]).
tasks(Directory) ->
    ?CALL(settee_nif:tasks(Tag, Directory)).

-spec version() -> text().
version() ->
    settee_nif:version().

%%% Documents

-spec name(database()) -> text().
name(Db) ->
    settee_nif:name(Db).

%% Counts and sizes, as of `GET /{db}`.
-spec info(database()) -> result(#{text() => json()}).
info(Db) ->
    ?CALL(settee_nif:info(Tag, Db)).

%% Starts a compaction in the background.
-spec compact(database()) -> ok | {error, error()}.
compact(Db) ->
    ?CALL(settee_nif:compact(Tag, Db)).

-spec get(database(), text()) -> result(#{text() => json()}).
get(Db, Id) ->
    get(Db, Id, #{}).

%% Reads a document. Options: `rev`, `latest`, `revs`, `revs_info`, `conflicts`, `deleted_conflicts`, `local_seq`, `attachments`, `raw`.
-spec get(database(), text(), options()) -> result(#{text() => json()} | text()).
get(Db, Id, Options) when is_map(Options) ->
    with_options(Options, [raw], fun(Text) -> ?CALL(settee_nif:get(Tag, Db, Id, Text, is_raw(Options))) end).

-spec put(database(), document()) -> result(written()).
put(Db, Document) ->
    put(Db, Document, #{}).

%% Writes a document, and returns its id and revision once it is on disk. Without `_id` it gets a new id; an existing document needs its
%% `_rev`, or the write is a `conflict`. Options: `delayed => true` returns immediately, and the document is on disk within a second;
%% `new_edits => false` keeps the document's own revision, as a replicator does.
-spec put(database(), document(), options()) -> result(written()).
put(Db, Document, Options) when is_map(Options), is_map(Document) orelse is_binary(Document) ->
    settee_json:with([document(Document), settee_json:options(Options, [])], fun(Doc, Text) ->
        ?CALL(settee_nif:put(Tag, Db, Doc, Text))
    end).

-spec delete(database(), text(), text()) -> result(written()).
delete(Db, Id, Rev) ->
    delete(Db, Id, Rev, #{}).

-spec delete(database(), text(), text(), options()) -> result(written()).
delete(Db, Id, Rev, Options) when is_map(Options) ->
    with_options(Options, [], fun(Text) -> ?CALL(settee_nif:delete(Tag, Db, Id, Rev, Text)) end).

-spec bulk(database(), [document() | {document(), #{text() => content()}}]) -> result([outcome()]).
bulk(Db, Documents) ->
    bulk(Db, Documents, #{}).

%% Writes documents in one commit, and returns the outcome of each, in their order; with `new_edits => false` only those of documents that
%% were refused. `{Document, Contents}` is one with attachments that are stored as they are read. An error of a content ends the bulk:
%% nothing is written.
-spec bulk(database(), [document() | {document(), #{text() => content()}}], options()) -> result([outcome()]).
bulk(Db, Documents, Options) when is_list(Documents), is_map(Options) ->
    Write =
        case lists:any(fun is_tuple/1, Documents) of
            true -> fun(Text) -> settee_bulk:write(Db, Documents, Text) end;
            false -> fun(Text) -> write_bulk(Db, Documents, Text) end
        end,
    case with_options(Options, [], Write) of
        {ok, Outcomes} -> {ok, [outcome(Outcome) || Outcome <- Outcomes]};
        {error, _} = Error -> Error
    end.

write_bulk(Db, Documents, Options) ->
    case settee_json:documents(Documents) of
        {ok, Texts} -> ?CALL(settee_nif:bulk(Tag, Db, Texts, Options));
        {error, _} = Error -> Error
    end.

outcome(#{<<"ok">> := true, <<"id">> := Id, <<"rev">> := Rev}) ->
    {Id, {ok, Rev}};
outcome(#{<<"id">> := Id, <<"error">> := Error, <<"reason">> := Reason}) ->
    {Id, {error, {settee_nif:code(Error), Reason}}}.

%%% Listings, views and queries

-spec all_docs(database()) -> result(rows()).
all_docs(Db) ->
    all_docs(Db, #{}).

%% Documents by id. Options are CouchDB's (`key`, `keys`, `startkey`, `endkey`, `inclusive_end`, `limit`, `skip`, `descending`,
%% `include_docs`, `conflicts`, `attachments`, `update_seq`, `partition`), `only` (`<<"_design_docs">>` or `<<"_local_docs">>`) and `raw`.
-spec all_docs(database(), options()) -> result(rows()).
all_docs(Db, Options) when is_map(Options) ->
    with_options(Options, [raw], fun(Text) -> ?CALL(settee_nif:all_docs(Tag, Db, Text, is_raw(Options))) end).

-spec view(database(), text(), text()) -> result(rows()).
view(Db, Design, View) ->
    view(Db, Design, View, #{}).

%% Rows of a view, from one snapshot, after its index is updated. Options: those of `all_docs/2`, `startkey_docid`, `endkey_docid`,
%% `reduce`, `group`, `group_level`, and `update` (`true`, `false` or `<<"lazy">>`).
-spec view(database(), text(), text(), options()) -> result(rows()).
view(Db, Design, View, Options) when is_map(Options) ->
    with_options(Options, [raw], fun(Text) -> ?CALL(settee_nif:view(Tag, Db, Design, View, Text, is_raw(Options))) end).

%% Waits until the index of a design document is up to date.
-spec build_index(database(), text()) -> ok | {error, error()}.
build_index(Db, Design) ->
    ?CALL(settee_nif:build_index(Tag, Db, Design)).

%% Progress of a design document's index: `{Done, Total}` of the changes, or `idle`.
-spec progress(database(), text()) -> result({non_neg_integer(), non_neg_integer()} | idle).
progress(Db, Design) ->
    ?CALL(settee_nif:progress(Tag, Db, Design)).

-spec find(database(), map()) -> result(rows()).
find(Db, Selector) ->
    find(Db, Selector, #{}).

%% Documents that match a selector. Options: `fields`, `sort`, `limit`, `skip`, `use_index`, `bookmark`, `conflicts`, `update`,
%% `execution_stats`, `allow_fallback`, `aggregate`, `raw`. Without a limit it returns all matches.
-spec find(database(), map(), options()) -> result(rows()).
find(Db, Selector, Options) when is_map(Selector), is_map(Options) ->
    with_query(Selector, Options, fun(Query) -> ?CALL(settee_nif:find(Tag, Db, Query, is_raw(Options))) end).

-spec explain(database(), map()) -> result(#{text() => json()}).
explain(Db, Selector) ->
    explain(Db, Selector, #{}).

%% Which index would answer a query, as of `_explain`.
-spec explain(database(), map(), options()) -> result(#{text() => json()}).
explain(Db, Selector, Options) when is_map(Selector), is_map(Options) ->
    with_query(Selector, Options, fun(Query) -> ?CALL(settee_nif:explain(Tag, Db, Query)) end).

%% The indexes for queries, that of all documents first.
-spec indexes(database()) -> result([#{text() => json()}]).
indexes(Db) ->
    ?CALL(settee_nif:indexes(Tag, Db)).

-spec create_index(database(), [term()]) -> result(#{text() => json()}).
create_index(Db, Fields) ->
    create_index(Db, Fields, #{}).

%% Makes an index for queries unless it exists. Options: `name`, `ddoc`, `partitioned`, `partial_filter_selector`.
-spec create_index(database(), [term()], options()) -> result(#{text() => json()}).
create_index(Db, Fields, Options) when is_list(Fields), is_map(Options) ->
    Index = (maps:with([partial_filter_selector], Options))#{fields => Fields},
    Definition = (maps:without([partial_filter_selector], Options))#{type => <<"json">>, index => Index},
    settee_json:with([settee_json:encode(Definition)], fun(Text) -> ?CALL(settee_nif:create_index(Tag, Db, Text)) end).

-spec delete_index(database(), text(), text()) -> ok | {error, error()}.
delete_index(Db, Design, Name) ->
    ?CALL(settee_nif:delete_index(Tag, Db, Design, Name)).

-spec next(rows() | feed()) -> result([term()]) | done.
next(Cursor) ->
    next(Cursor, infinity).

%% The next rows or changes, at least one; `done` at the end. Of a live feed: `timeout` when no change came within this number of
%% milliseconds; the next call continues.
-spec next(rows() | feed(), timeout()) -> result([term()]) | done | timeout.
next(Cursor, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    ?CALL(settee_nif:next(Tag, Cursor, Timeout)).

%% All remaining rows or changes. What returned the cursor may be passed as it is.
-spec to_list(rows() | feed() | result(rows() | feed())) -> result([term()]).
to_list({ok, Cursor}) ->
    to_list(Cursor);
to_list({error, _} = Error) ->
    Error;
to_list(Cursor) ->
    case fold(fun(Row, Rows) -> [Row | Rows] end, [], Cursor) of
        {ok, Rows} -> {ok, lists:reverse(Rows)};
        {error, _} = Error -> Error
    end.

%% Calls `Function(Row, Accumulator)` for each remaining row or change; a part of the rows is in memory at a time.
-spec fold(fun((term(), Acc) -> Acc), Acc, rows() | feed() | result(rows() | feed())) -> result(Acc).
fold(Function, Acc, {ok, Cursor}) ->
    fold(Function, Acc, Cursor);
fold(_Function, _Acc, {error, _} = Error) ->
    Error;
fold(Function, Acc, Cursor) ->
    case next(Cursor) of
        {ok, Rows} -> fold(Function, lists:foldl(Function, Acc, Rows), Cursor);
        done -> {ok, Acc};
        {error, _} = Error -> Error
    end.

%% Members that are known before the rows: `total_rows`, `offset`, `update_seq`.
-spec head(rows()) -> result(#{text() => json()}).
head(Rows) ->
    ?CALL(settee_nif:head(Tag, Rows)).

%% Members that are known after the last row: for a query `bookmark`, `warning`, `execution_stats`.
-spec tail(rows()) -> result(#{text() => json()}).
tail(Rows) ->
    ?CALL(settee_nif:tail(Tag, Rows)).

%%% Changes

-spec changes(database()) -> result(feed()).
changes(Db) ->
    changes(Db, #{}).

%% Opens a feed of changes. Options: `since` (a seq or `<<"now">>`), `live` (waits for new changes), `limit`, `descending`, `all_leaves`,
%% `include_docs`, `conflicts`, `attachments`, `doc_ids`, `selector`, `fields`, `design`, `raw`.
-spec changes(database(), options()) -> result(feed()).
changes(Db, Options) when is_map(Options) ->
    with_options(Options, [raw], fun(Text) -> ?CALL(settee_nif:changes(Tag, Db, Text, is_raw(Options))) end).

%% The seq to resume from later: after the changes that the feed returned.
-spec last_seq(feed()) -> result(text()).
last_seq(Feed) ->
    ?CALL(settee_nif:last_seq(Tag, Feed)).

-spec follow(database()) -> result(pid()).
follow(Db) ->
    follow(Db, #{}).

%% Sends changes to the calling process, as `{settee_changes, Follower, [Change]}`, existing ones and then new ones as they come. `more/1`
%% requests the next ones. `{settee_end, Follower, Why}` comes when there will be no more: the directory was closed, or the database
%% deleted. Options are those of `changes/2`.
-spec follow(database(), options()) -> result(pid()).
follow(Db, Options) when is_map(Options) ->
    settee_follower:start(Db, Options).

-spec more(pid()) -> ok.
more(Follower) ->
    settee_follower:more(Follower).

%% Ends a follower, and removes its messages.
-spec unfollow(pid()) -> ok.
unfollow(Follower) ->
    settee_follower:stop(Follower).

%%% Attachments

-spec get_attachment(database(), text(), text()) -> result({attachment_info(), binary()}).
get_attachment(Db, Id, Name) ->
    get_attachment(Db, Id, Name, #{}).

%% Reads an attachment into memory. Options: `rev`, `start` and `end`, in bytes.
-spec get_attachment(database(), text(), text(), options()) -> result({attachment_info(), binary()}).
get_attachment(Db, Id, Name, Options) ->
    case open_attachment(Db, Id, Name, Options) of
        {ok, {Reader, Info}} ->
            case read_all(Reader, []) of
                {ok, Bytes} -> {ok, {Info, Bytes}};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

read_all(Reader, Pieces) ->
    case read(Reader) of
        {ok, Piece} ->
            read_all(Reader, [Piece | Pieces]);
        eof ->
            {ok, iolist_to_binary(lists:reverse(Pieces))};
        {error, _} = Error ->
            Error
    end.

-spec open_attachment(database(), text(), text()) -> result({reader(), attachment_info()}).
open_attachment(Db, Id, Name) ->
    open_attachment(Db, Id, Name, #{}).

-spec open_attachment(database(), text(), text(), options()) -> result({reader(), attachment_info()}).
open_attachment(Db, Id, Name, Options) when is_map(Options) ->
    Open = fun(Text) -> ?CALL(settee_nif:attachment(Tag, Db, Id, Name, Text)) end,
    case with_options(Options, [], Open) of
        {ok, {Reader, Type, Length, Digest}} ->
            {ok, {Reader, #{content_type => Type, length => Length, digest => Digest}}};
        {error, _} = Error ->
            Error
    end.

%% The next bytes of an attachment, `eof` at its end.
-spec read(reader()) -> result(binary()) | eof.
read(Reader) ->
    ?CALL(settee_nif:read(Tag, Reader)).

-spec put_attachment(database(), text(), text(), content()) -> result(written()).
put_attachment(Db, Id, Name, Content) ->
    put_attachment(Db, Id, Name, Content, #{}).

%% Writes an attachment of the revision `rev` of a document, or of a new document. Options: `rev`, `content_type`.
-spec put_attachment(database(), text(), text(), content(), options()) -> result(written()).
put_attachment(Db, Id, Name, Content, Options) ->
    case create_attachment(Db, Id, Name, Options) of
        {ok, Writer} ->
            try write(Writer, Content) of
                ok -> finish(Writer);
                {error, _} = Error -> Error
            after
                close(Writer)
            end;
        {error, _} = Error ->
            Error
    end.

-spec create_attachment(database(), text(), text()) -> result(writer()).
create_attachment(Db, Id, Name) ->
    create_attachment(Db, Id, Name, #{}).

-spec create_attachment(database(), text(), text(), options()) -> result(writer()).
create_attachment(Db, Id, Name, Options) when is_map(Options) ->
    with_options(Options, [], fun(Text) -> ?CALL(settee_nif:put_attachment(Tag, Db, Id, Name, Text)) end).

-spec write(writer(), content()) -> ok | {error, error()}.
write(Writer, Content) ->
    settee_bulk:pieces(Content, fun(Piece) -> ?CALL(settee_nif:write(Tag, Writer, Piece)) end).

%% Ends an attachment, and writes the document's new revision.
-spec finish(writer()) -> result(written()).
finish(Writer) ->
    ?CALL(settee_nif:finish(Tag, Writer)).

-spec delete_attachment(database(), text(), text(), text()) -> result(written()).
delete_attachment(Db, Id, Name, Rev) ->
    ?CALL(settee_nif:delete_attachment(Tag, Db, Id, Name, Rev)).

%%% Ids

-spec sequential_ids() -> result(ids()).
sequential_ids() ->
    sequential_ids(<<>>).

%% A source of ids: a prefix and 32 hexadecimal digits, each greater than all earlier ones of this node, kind and prefix. They start at a
%% random number, and do not show when they were made.
-spec sequential_ids(text()) -> result(ids()).
sequential_ids(Prefix) ->
    settee_nif:sequential_ids(Prefix).

-spec monotonic_ids() -> result(ids()).
monotonic_ids() ->
    monotonic_ids(<<>>).

%% As `sequential_ids/1`, but UUIDs of version 7: those of several nodes are in the order of their milliseconds.
-spec monotonic_ids(text()) -> result(ids()).
monotonic_ids(Prefix) ->
    settee_nif:monotonic_ids(Prefix).

-spec next_id(ids()) -> text().
next_id(Ids) ->
    settee_nif:next_id(Ids).

%%% Arguments

with_options(Options, Own, Function) ->
    settee_json:with([settee_json:options(Options, Own)], Function).

with_query(Selector, Options, Function) ->
    Query = (maps:remove(raw, Options))#{selector => Selector},
    settee_json:with([settee_json:encode(Query)], Function).

document(Text) when is_binary(Text) -> {ok, Text};
document(Document) -> settee_json:encode(Document).

is_raw(Options) ->
    maps:get(raw, Options, false) =:= true.
