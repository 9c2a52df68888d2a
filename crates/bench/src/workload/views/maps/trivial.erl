fun({Doc}) ->
  % build ROUND
  Emit([proplists:get_value(<<"type">>, Doc), proplists:get_value(<<"year">>, Doc)], 1)
end.
