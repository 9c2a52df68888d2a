fun({Doc}) ->
  % build ROUND
  case lists:keyfind(<<"type">>, 1, Doc) of
    {_, <<"order">>} ->
      Emit(proplists:get_value(<<"customer">>, Doc), proplists:get_value(<<"amount">>, Doc));
    _ -> ok
  end
end.
