defmodule Settee.Error do
  @moduledoc """
  A refusal or a failure.

  `code` is CouchDB's word, an atom such as `:not_found` or `:conflict`, or a string if a function of a design document chose it.
  `reason` is a sentence.
  """

  defexception [:code, :reason]

  @type t :: %__MODULE__{code: atom | String.t(), reason: String.t()}

  @impl true
  def message(%__MODULE__{code: code, reason: reason}), do: "#{code}: #{reason}"
end

defmodule Settee.Directory do
  @moduledoc """
  A process that opens a directory, for a supervisor:

      children = [{Settee.Directory, path: "data", name: MyApp.Store}]

  `Settee.Directory.get(MyApp.Store)` returns the directory. It is closed when the process ends, and a restarted one opens it again.
  Other options are those of `Settee.open/2`.
  """

  use GenServer

  @spec start_link(keyword) :: GenServer.on_start()
  def start_link(options) do
    GenServer.start_link(__MODULE__, options, name: Keyword.fetch!(options, :name))
  end

  @doc "Returns the directory that the process of this name has open."
  @spec get(atom) :: :settee.directory()
  def get(name), do: :persistent_term.get({__MODULE__, name})

  def child_spec(options) do
    %{id: Keyword.fetch!(options, :name), start: {__MODULE__, :start_link, [options]}, shutdown: 60_000}
  end

  @impl true
  def init(options) do
    # So that `terminate` is called.
    Process.flag(:trap_exit, true)
    {name, options} = Keyword.pop!(options, :name)
    {path, options} = Keyword.pop!(options, :path)

    case Settee.open(path, options) do
      {:ok, directory} ->
        :persistent_term.put({__MODULE__, name}, directory)
        {:ok, directory}

      {:error, error} ->
        {:stop, error}
    end
  end

  @impl true
  def terminate(_reason, directory), do: Settee.close(directory)
end

defmodule Settee do
  @moduledoc """
  Settee's databases in this node: documents, views, queries, changes and attachments, without a server.

  Functions return `{:ok, value}` or `:ok`, and `{:error, %Settee.Error{}}`; those with `!` return the value, or raise. Documents are maps
  with string keys (atoms too, when written), and `nil` for JSON's `null`. Options are keywords with CouchDB's names. Listings are
  lists, and lazy streams by the functions that begin with `stream`.

  A call blocks only its process, and any process can use any handle. The Erlang module `:settee` has the same functions.
  """

  alias Settee.Error

  @type error :: {:error, Error.t()}
  @type document :: map | String.t()

  # Directories

  @doc """
  Opens a directory of databases, and creates it if it does not exist. It is closed by `close/1`, when its owner ends (the calling process,
  or `owner:`), or when no process has it any more.
  """
  @spec open(Path.t(), keyword) :: {:ok, :settee.directory()} | error
  def open(path, options \\ []) do
    options = options |> Map.new() |> Map.put_new(:null, nil)

    options =
      case options do
        %{functions: functions} when is_list(functions) -> %{options | functions: Map.new(functions)}
        _ -> options
      end

    path |> IO.chardata_to_string() |> :settee.open(options) |> result()
  end

  def open!(path, options \\ []), do: bang(open(path, options))

  @doc "Closes a directory with everything that was opened in it; or rows, a feed, a reader or a writer."
  @spec close(term) :: :ok | error
  def close(handle), do: result(:settee.close(handle))

  @doc "Names of databases in their order."
  def names(directory), do: result(:settee.names(directory))

  @doc "Makes a database. Options: `exist_ok`, `q`, `partitioned`."
  def create(directory, name, options \\ []), do: result(:settee.create(directory, name, Map.new(options)))
  def create!(directory, name, options \\ []), do: bang(create(directory, name, options))

  @doc "Returns the database of this name."
  def database(directory, name), do: result(:settee.database(directory, name))
  def database!(directory, name), do: bang(database(directory, name))

  @doc "Deletes a database."
  def delete_database(directory, name), do: result(:settee.delete_database(directory, name))

  @doc "Compactions and index builds under way."
  def tasks(directory), do: result(:settee.tasks(directory))

  @doc "The version of the package."
  defdelegate version, to: :settee

  # Documents

  @doc "Counts and sizes."
  def info(db), do: result(:settee.info(db))

  @doc "Reads a document."
  @spec get(:settee.database(), String.t(), keyword) :: {:ok, map | String.t()} | error
  def get(db, id, options \\ []), do: result(:settee.get(db, id, Map.new(options)))
  def get!(db, id, options \\ []), do: bang(get(db, id, options))

  @doc """
  Writes a document, and returns its id and revision once it is on disk. An existing document needs its `"_rev"`, or the write is a
  `:conflict`. Options: `delayed`, `new_edits`.
  """
  @spec put(:settee.database(), document, keyword) :: {:ok, {String.t(), String.t()}} | error
  def put(db, document, options \\ []), do: result(:settee.put(db, document, Map.new(options)))
  def put!(db, document, options \\ []), do: bang(put(db, document, options))

  @doc "Deletes a document."
  def delete(db, id, rev, options \\ []), do: result(:settee.delete(db, id, rev, Map.new(options)))
  def delete!(db, id, rev, options \\ []), do: bang(delete(db, id, rev, options))

  @doc """
  Reads a document, or `initial` if it does not exist, and writes what `function` returns for it; again after a conflict.
  """
  @spec update(:settee.database(), String.t(), map, (map -> map)) :: {:ok, {String.t(), String.t()}} | error
  def update(db, id, initial \\ %{}, function) do
    document =
      case get(db, id) do
        {:error, %Error{code: :not_found}} -> {:ok, Map.put(initial, "_id", id)}
        found -> found
      end

    with {:ok, document} <- document do
      case put(db, function.(document)) do
        {:error, %Error{code: :conflict}} -> update(db, id, initial, function)
        written -> written
      end
    end
  end

  @doc """
  Writes documents in one commit, and returns `{id, {:ok, rev}}` or `{id, {:error, error}}` for each. `{document, contents}` is one with
  attachments: a map of names and contents, each iodata or an enumerable of iodata.
  """
  def bulk(db, documents, options \\ []) do
    documents = Enum.map(documents, &prepared/1)

    with {:ok, outcomes} <- result(:settee.bulk(db, documents, Map.new(options))) do
      {:ok, Enum.map(outcomes, fn {id, outcome} -> {id, result(outcome)} end)}
    end
  end

  def bulk!(db, documents, options \\ []), do: bang(bulk(db, documents, options))

  defp prepared({document, contents}), do: {document, Map.new(contents, fn {name, content} -> {name, content(content)} end)}
  defp prepared(document), do: document

  # Listings, views and queries

  @doc "Documents by id, as a list. Options are CouchDB's, `only` and `raw`."
  def all_docs(db, options \\ []), do: list(:settee.all_docs(db, Map.new(options)))
  def all_docs!(db, options \\ []), do: bang(all_docs(db, options))

  @doc "Rows of a view, as a list, after its index is updated."
  def view(db, design, view, options \\ []), do: list(:settee.view(db, design, view, Map.new(options)))
  def view!(db, design, view, options \\ []), do: bang(view(db, design, view, options))

  @doc "Documents that match a selector, as a list. Options: `fields`, `sort`, `limit`, …"
  def find(db, selector, options \\ []), do: list(:settee.find(db, selector, Map.new(options)))
  def find!(db, selector, options \\ []), do: bang(find(db, selector, options))

  @doc "The rows of `all_docs/2` as a stream, which reads them from one snapshot when they are needed. It raises `Settee.Error`."
  def stream_all_docs(db, options \\ []), do: stream(fn -> :settee.all_docs(db, Map.new(options)) end)

  @doc "The rows of `view/4` as a stream."
  def stream_view(db, design, view, options \\ []), do: stream(fn -> :settee.view(db, design, view, Map.new(options)) end)

  @doc "The documents of `find/3` as a stream."
  def stream_find(db, selector, options \\ []), do: stream(fn -> :settee.find(db, selector, Map.new(options)) end)

  @doc "Waits until the index of a design document is up to date."
  def build_index(db, design), do: result(:settee.build_index(db, design))

  @doc "Makes an index for queries. Options: `name`, `ddoc`, `partitioned`, `partial_filter_selector`."
  def create_index(db, fields, options \\ []), do: result(:settee.create_index(db, fields, Map.new(options)))

  @doc "The indexes for queries."
  def indexes(db), do: result(:settee.indexes(db))

  @doc "Deletes an index."
  def delete_index(db, design, name), do: result(:settee.delete_index(db, design, name))

  @doc "Which index would answer a query."
  def explain(db, selector, options \\ []), do: result(:settee.explain(db, selector, Map.new(options)))

  # Changes

  @doc "Changes so far, as a list. Options: `since`, `limit`, `include_docs`, `selector`, …"
  def changes(db, options \\ []), do: list(:settee.changes(db, Map.new(options)))
  def changes!(db, options \\ []), do: bang(changes(db, options))

  @doc """
  Changes as a stream. With `live: true` it waits for new ones: for ever, or until none came for `timeout:` milliseconds.
  """
  def stream_changes(db, options \\ []) do
    {timeout, options} = Keyword.pop(options, :timeout, :infinity)
    stream(fn -> :settee.changes(db, Map.new(options)) end, timeout)
  end

  @doc """
  Sends changes to the calling process, as `{:settee_changes, follower, changes}`; `more/1` requests the next ones.
  `{:settee_end, follower, why}` comes when there will be no more.
  """
  def follow(db, options \\ []), do: result(:settee.follow(db, Map.new(options)))

  defdelegate more(follower), to: :settee
  defdelegate unfollow(follower), to: :settee

  # Attachments

  @doc "Reads an attachment into memory: `{info, bytes}`. Options: `rev`, `start`, `end`."
  def get_attachment(db, id, name, options \\ []), do: result(:settee.get_attachment(db, id, name, Map.new(options)))
  def get_attachment!(db, id, name, options \\ []), do: bang(get_attachment(db, id, name, options))

  @doc "The bytes of an attachment as a stream of binaries."
  def stream_attachment(db, id, name, options \\ []) do
    Stream.resource(
      fn -> db |> :settee.open_attachment(id, name, Map.new(options)) |> result() |> bang() |> elem(0) end,
      fn reader ->
        case :settee.read(reader) do
          {:ok, piece} -> {[piece], reader}
          :eof -> {:halt, reader}
          error -> raise elem(result(error), 1)
        end
      end,
      &:settee.close/1
    )
  end

  @doc """
  Writes an attachment of the revision `rev:` of a document, or of a new document: iodata, or an enumerable of iodata such as a file's
  stream.
  """
  def put_attachment(db, id, name, content, options \\ []) do
    result(:settee.put_attachment(db, id, name, content(content), Map.new(options)))
  end

  def put_attachment!(db, id, name, content, options \\ []), do: bang(put_attachment(db, id, name, content, options))

  @doc "Removes an attachment."
  def delete_attachment(db, id, name, rev), do: result(:settee.delete_attachment(db, id, name, rev))

  # Ids

  @doc "An endless stream of ids: the prefix, and 32 hexadecimal digits that grow."
  def sequential_ids(prefix \\ ""), do: ids(:settee.sequential_ids(prefix))

  @doc "An endless stream of ids that start with the time."
  def monotonic_ids(prefix \\ ""), do: ids(:settee.monotonic_ids(prefix))

  defp ids(source) do
    source = bang(result(source))
    Stream.repeatedly(fn -> :settee.next_id(source) end)
  end

  # Results

  defp result({:error, {code, reason}}) when is_binary(reason), do: {:error, %Error{code: code, reason: reason}}
  defp result({:error, {code, reason}}), do: {:error, %Error{code: code, reason: inspect(reason)}}
  defp result(other), do: other

  defp bang({:ok, value}), do: value
  defp bang({:error, error}), do: raise(error)

  defp list(cursor), do: result(:settee.to_list(cursor))

  defp stream(open, timeout \\ :infinity) do
    Stream.resource(
      fn -> bang(result(open.())) end,
      fn cursor ->
        case :settee.next(cursor, timeout) do
          {:ok, rows} -> {rows, cursor}
          {:error, _} = error -> raise elem(result(error), 1)
          _end -> {:halt, cursor}
        end
      end,
      &:settee.close/1
    )
  end

  # A content that is neither iodata nor a function is an enumerable: it is read when it is needed.
  defp content(content) when is_binary(content) or is_list(content) or is_function(content, 0), do: content

  defp content(enumerable) do
    next = fn piece, _ -> {:suspend, piece} end
    pieces(&Enumerable.reduce(enumerable, &1, next))
  end

  defp pieces(continue) do
    fn ->
      case continue.({:cont, nil}) do
        {:suspended, piece, continue} -> {:ok, piece, pieces(continue)}
        _end -> :eof
      end
    end
  end
end
