defmodule Settee.MixProject do
  use Mix.Project

  def project do
    [
      app: :settee,
      version: "@VERSION@",
      elixir: "~> 1.14",
      description: "A document database with CouchDB's documents, views and queries, in your node",
      deps: []
    ]
  end
end
