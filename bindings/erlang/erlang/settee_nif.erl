%% The functions of the library `priv/settee_nif.so`.
%%
%% One whose first argument is a tag starts its work and returns `ok`; the result comes as the message `{Tag, Result}`. It returns
%% `{error, {Code, Reason}}` when it could not start. `settee` has the documented functions.
-module(settee_nif).

-export([call/1]).
-export([
    all_docs/4, attachment/5, begin_bulk/3, build_index/3, bulk/4, bulk_add/3, bulk_begin/2, bulk_commit/2, bulk_end/2, bulk_write/3,
    changes/4, close/2, code/1, compact/2, create/4, create_index/3, database/3, delete/5, delete_attachment/5, delete_database/3, delete_index/4,
    explain/3, find/4, finish/2, get/5, has/3, head/2, indexes/2, info/2, is_closed/1, last_seq/2, monotonic_ids/1, name/1, names/2,
    next/3, next_id/1, open/5, path/1, progress/3, put/4, put_attachment/5, read/2, sequential_ids/1, tail/2, tasks/2, text/1,
    text_dirty/1, texts/1, version/0, view/6, write/3
]).

-on_load(load/0).

-spec load() -> ok | {error, term()}.
load() ->
    erlang:load_nif(filename:join(priv(), "settee_nif"), 0).

%% The folder next to that of this module's object code; without a file of it, for example in an escript, that of the application.
priv() ->
    case code:which(?MODULE) of
        Beam when is_list(Beam), Beam =/= [] ->
            filename:join([filename:dirname(filename:absname(Beam)), "..", "priv"]);
        _ ->
            code:priv_dir(settee)
    end.

%% Starts something, and waits for its result.
-spec call(fun((reference()) -> ok | {error, settee:error()})) -> term().
call(Start) ->
    Tag = make_ref(),
    case Start(Tag) of
        ok ->
            receive
                {Tag, Result} -> Result
            end;
        {error, _} = Error ->
            Error
    end.

-define(NIF, erlang:nif_error(not_loaded)).

all_docs(_Tag, _Db, _Options, _IsRaw) -> ?NIF.
attachment(_Tag, _Db, _Id, _Name, _Options) -> ?NIF.
begin_bulk(_Tag, _Db, _Options) -> ?NIF.
build_index(_Tag, _Db, _Design) -> ?NIF.
bulk(_Tag, _Db, _Texts, _Options) -> ?NIF.
bulk_add(_Tag, _Bulk, _Text) -> ?NIF.
bulk_begin(_Tag, _Bulk) -> ?NIF.
bulk_commit(_Tag, _Bulk) -> ?NIF.
bulk_end(_Tag, _Bulk) -> ?NIF.
bulk_write(_Tag, _Bulk, _Bytes) -> ?NIF.
changes(_Tag, _Db, _Options, _IsRaw) -> ?NIF.
close(_Tag, _Handle) -> ?NIF.
code(_Word) -> ?NIF.
compact(_Tag, _Db) -> ?NIF.
create(_Tag, _Directory, _Name, _Options) -> ?NIF.
create_index(_Tag, _Db, _Definition) -> ?NIF.
database(_Tag, _Directory, _Name) -> ?NIF.
delete(_Tag, _Db, _Id, _Rev, _Options) -> ?NIF.
delete_attachment(_Tag, _Db, _Id, _Name, _Rev) -> ?NIF.
delete_database(_Tag, _Directory, _Name) -> ?NIF.
delete_index(_Tag, _Db, _Design, _Name) -> ?NIF.
explain(_Tag, _Db, _Query) -> ?NIF.
find(_Tag, _Db, _Query, _IsRaw) -> ?NIF.
finish(_Tag, _Writer) -> ?NIF.
get(_Tag, _Db, _Id, _Options, _IsRaw) -> ?NIF.
has(_Tag, _Directory, _Name) -> ?NIF.
head(_Tag, _Rows) -> ?NIF.
indexes(_Tag, _Db) -> ?NIF.
info(_Tag, _Db) -> ?NIF.
is_closed(_Directory) -> ?NIF.
last_seq(_Tag, _Feed) -> ?NIF.
monotonic_ids(_Prefix) -> ?NIF.
name(_Db) -> ?NIF.
names(_Tag, _Directory) -> ?NIF.
next(_Tag, _Cursor, _TimeoutMs) -> ?NIF.
next_id(_Ids) -> ?NIF.
open(_Tag, _Path, _Options, _Owner, _Null) -> ?NIF.
path(_Directory) -> ?NIF.
progress(_Tag, _Db, _Design) -> ?NIF.
put(_Tag, _Db, _Text, _Options) -> ?NIF.
put_attachment(_Tag, _Db, _Id, _Name, _Options) -> ?NIF.
read(_Tag, _Reader) -> ?NIF.
sequential_ids(_Prefix) -> ?NIF.
tail(_Tag, _Rows) -> ?NIF.
tasks(_Tag, _Directory) -> ?NIF.
text(_Term) -> ?NIF.
text_dirty(_Term) -> ?NIF.
texts(_Terms) -> ?NIF.
version() -> ?NIF.
view(_Tag, _Db, _Design, _View, _Options, _IsRaw) -> ?NIF.
write(_Tag, _Writer, _Bytes) -> ?NIF.
