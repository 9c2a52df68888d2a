# The Elixir module as people use it. The suite `bindings` runs this.

defmodule Checks do
  @parts [
    :documents_are_maps_with_nil,
    :errors_are_structs_and_exceptions,
    :bulks_take_enumerables,
    :listings_are_lists_and_streams,
    :changes_are_streamed,
    :attachments_are_streamed,
    :documents_are_updated,
    :ids_are_streams,
    :a_supervisor_restarts_a_directory
  ]

  def run do
    for part <- @parts do
      folder = Path.join(System.tmp_dir!(), "settee-bindings-#{System.unique_integer([:positive])}-#{System.pid()}")
      File.mkdir_p!(folder)
      {_pid, monitor} = spawn_monitor(fn -> apply(__MODULE__, part, [folder]) end)
      name = part |> Atom.to_string() |> String.replace("_", " ")

      receive do
        {:DOWN, ^monitor, _, _, :normal} -> IO.puts("ok #{name}")
        {:DOWN, ^monitor, _, _, why} -> IO.puts("not ok #{name}: #{why |> inspect() |> String.replace("\n", " ")}")
      end

      File.rm_rf!(folder)
    end

    IO.puts("done")
  end

  defp opened(folder) do
    directory = Settee.open!(folder)
    {directory, Settee.create!(directory, "db", exist_ok: true)}
  end

  def documents_are_maps_with_nil(folder) do
    {directory, db} = opened(folder)
    {:ok, {"a", rev}} = Settee.put(db, %{_id: "a", n: 1, none: nil, list: [1.0, true, %{x: nil}]})
    doc = Settee.get!(db, "a")
    true = doc == %{"_id" => "a", "_rev" => rev, "n" => 1, "none" => nil, "list" => [1.0, true, %{"x" => nil}]}
    {"a", second} = Settee.put!(db, %{doc | "n" => 2})
    {:ok, %{"n" => 1}} = Settee.get(db, "a", rev: rev)
    {:ok, {_, _}} = Settee.delete(db, "a", second)
    {:ok, %{"doc_count" => 0}} = Settee.info(db)
    {:ok, ["db"]} = Settee.names(directory)
    {:ok, []} = Settee.tasks(directory)
    true = is_binary(Settee.version())
    :ok = Settee.close(directory)
  end

  def errors_are_structs_and_exceptions(folder) do
    {directory, db} = opened(folder)
    {:error, %Settee.Error{code: :not_found, reason: "missing"} = error} = Settee.get(db, "a")
    "not_found: missing" = Exception.message(error)

    :raised =
      try do
        Settee.get!(db, "a")
      rescue
        %{code: :not_found} in Settee.Error -> :raised
      end

    {:error, %Settee.Error{code: :bad_request, reason: reason}} = Settee.put(db, %{_id: "d", at: ~D[2026-11-29]})
    true = reason =~ ".at.__struct__"
    {:error, %Settee.Error{code: :in_use}} = Settee.open(folder)
    {:error, %Settee.Error{code: :file_exists}} = Settee.create(directory, "db")
    {:error, %Settee.Error{code: :bad_request}} = Settee.open(folder, nonsense: 1)
    {:ok, other} = Settee.open(folder <> "/other", functions: [time_limit_ms: 1000], q: 1)
    :ok = Settee.close(other)
    :ok = Settee.close(directory)
  end

  def bulks_take_enumerables(folder) do
    {_directory, db} = opened(folder)
    docs = Stream.map(1..100, &%{_id: "n#{&1}", n: &1})
    {:ok, outcomes} = Settee.bulk(db, docs)
    100 = length(outcomes)
    [{"n1", {:error, %Settee.Error{code: :conflict}}}, {"new", {:ok, "1-" <> _}}] = Settee.bulk!(db, [%{_id: "n1"}, %{_id: "new"}])

    # A stream is read when it is needed, and no further than an error.
    pieces = Stream.map(1..10, &String.duplicate("#{rem(&1, 10)}", 100_000))
    {:ok, [{"f", {:ok, _}}]} = Settee.bulk(db, [{%{"_id" => "f"}, %{"x" => pieces}}])
    {:ok, {%{length: 1_000_000}, bytes}} = Settee.get_attachment(db, "f", "x")
    true = bytes == Enum.join(pieces)
    broken = Stream.map(1..3, fn n -> if n == 3, do: raise("given up"), else: "x" end)

    :raised =
      try do
        Settee.bulk(db, [%{_id: "g"}, {%{"_id" => "h"}, %{"x" => broken}}])
      rescue
        RuntimeError -> :raised
      end

    {:error, %Settee.Error{code: :not_found}} = Settee.get(db, "g")
  end

  def listings_are_lists_and_streams(folder) do
    {_directory, db} = opened(folder)
    Settee.bulk!(db, for(n <- 1..3000, do: %{_id: String.pad_leading("#{n}", 5, "0"), n: n}))
    {:ok, [%{"id" => "00001"}, %{"id" => "00002"}]} = Settee.all_docs(db, limit: 2)
    3000 = db |> Settee.stream_all_docs() |> Enum.count()
    ["00001"] = db |> Settee.stream_all_docs() |> Stream.map(& &1["id"]) |> Enum.take(1)
    Settee.put!(db, %{_id: "_design/by", views: %{n: %{map: "function (doc) { emit(doc.n, null); }", reduce: "_count"}}})
    :ok = Settee.build_index(db, "by")
    [%{"key" => nil, "value" => 3000}] = Settee.view!(db, "by", "n")
    [2, 3] = db |> Settee.stream_view("by", "n", reduce: false, startkey: 2, endkey: 3) |> Enum.map(& &1["key"])
    {:ok, %{"result" => "created", "id" => design}} = Settee.create_index(db, ["n"], name: "by-n")
    {:ok, [_, %{"name" => "by-n"}]} = Settee.indexes(db)
    {:ok, [%{"n" => 10}]} = Settee.find(db, %{n: 10}, fields: ["n"])
    2990 = db |> Settee.stream_find(%{n: %{"$gt": 10}}) |> Enum.count()
    {:ok, %{"index" => %{"name" => "by-n"}}} = Settee.explain(db, %{n: 1})
    :ok = Settee.delete_index(db, design, "by-n")

    :raised =
      try do
        db |> Settee.stream_view("by", "nope") |> Enum.to_list()
      rescue
        Settee.Error -> :raised
      end
  end

  def changes_are_streamed(folder) do
    {directory, db} = opened(folder)
    Settee.bulk!(db, for(n <- 1..10, do: %{_id: "#{n}"}))
    changes = Settee.changes!(db)
    10 = length(changes)
    [] = Settee.changes!(db, since: List.last(changes)["seq"])
    task = Task.async(fn -> db |> Settee.stream_changes(live: true) |> Stream.map(& &1["id"]) |> Enum.find(&(&1 == "last")) end)
    Settee.put!(db, %{_id: "last"})
    "last" = Task.await(task)
    11 = db |> Settee.stream_changes(live: true, timeout: 0) |> Enum.count()
    {:ok, follower} = Settee.follow(db, since: "now")
    Settee.put!(db, %{_id: "followed"})

    receive do
      {:settee_changes, ^follower, [%{"id" => "followed"}]} -> :ok
    end

    :ok = Settee.more(follower)
    :ok = Settee.unfollow(follower)
    :ok = Settee.close(directory)
  end

  def attachments_are_streamed(folder) do
    {_directory, db} = opened(folder)
    path = Path.join(folder, "file")
    File.write!(path, :rand.bytes(2_000_000))
    {"a", rev} = Settee.put_attachment!(db, "a", "file", File.stream!(path, [], 65_536), content_type: "image/x")
    {%{content_type: "image/x", length: 2_000_000}, bytes} = Settee.get_attachment!(db, "a", "file")
    true = bytes == File.read!(path)
    copy = Path.join(folder, "copy")
    db |> Settee.stream_attachment("a", "file") |> Stream.into(File.stream!(copy)) |> Stream.run()
    true = bytes == File.read!(copy)
    {:ok, {_, _}} = Settee.delete_attachment(db, "a", "file", rev)
    {:error, %Settee.Error{code: :not_found}} = Settee.get_attachment(db, "a", "file")
  end

  def documents_are_updated(folder) do
    {_directory, db} = opened(folder)
    count = fn doc -> Map.update!(doc, "n", &(&1 + 1)) end
    1..50 |> Task.async_stream(fn _ -> {:ok, _} = Settee.update(db, "counter", %{"n" => 0}, count) end, max_concurrency: 10) |> Stream.run()
    %{"n" => 50} = Settee.get!(db, "counter")
  end

  def ids_are_streams(_folder) do
    for ids <- [Settee.sequential_ids("status/"), Settee.monotonic_ids("status/")] do
      made = Enum.take(ids, 100)
      true = made == made |> Enum.uniq() |> Enum.sort()
      true = Enum.all?(made, &(String.starts_with?(&1, "status/") and byte_size(&1) == 39))
    end
  end

  def a_supervisor_restarts_a_directory(folder) do
    {:ok, supervisor} = Supervisor.start_link([{Settee.Directory, path: folder, name: :store}], strategy: :one_for_one)
    db = Settee.create!(Settee.Directory.get(:store), "db")
    Settee.put!(db, %{_id: "a"})
    Logger.configure(level: :none)

    for _ <- 1..3 do
      pid = Process.whereis(:store)
      Process.exit(pid, :kill)
      wait(fn -> Process.whereis(:store) not in [nil, pid] end)
      # The call returns when the process has opened the directory.
      _ = :sys.get_state(:store)
      %{"_id" => "a"} = Settee.get!(Settee.database!(Settee.Directory.get(:store), "db"), "a")
    end

    {:error, %Settee.Error{code: :closed}} = Settee.get(db, "a")
    :ok = Supervisor.stop(supervisor)
    {:ok, directory} = Settee.open(folder)
    :ok = Settee.close(directory)
  end

  defp wait(is) do
    unless is.() do
      Process.sleep(5)
      wait(is)
    end
  end
end

Checks.run()
