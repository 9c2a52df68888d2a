fun({Doc}) ->
  % build ROUND
  Get = fun(Name, {Members}) -> {_, Value} = lists:keyfind(Name, 1, Members), Value end,
  Items = fun(Name) -> Get(Name, {Doc}) end,
  case lists:keyfind(<<"type">>, 1, Doc) of
    {_, <<"declaration">>} ->
      Year = Items(<<"year">>),
      Declarant = Items(<<"declarant">>),
      Code = Get(<<"code">>, Declarant),
      Income = lists:sum([Get(<<"amount">>, I) || I <- Items(<<"income">>),
        Get(<<"year">>, I) =:= Year, Get(<<"taxed">>, I)]),
      Assets = lists:sum([Get(<<"amount">>, A) * Get(<<"share">>, O) || A <- Items(<<"assets">>),
        O <- Get(<<"owners">>, A), Get(<<"code">>, O) =:= Code]),
      Debts = lists:sum([Get(<<"amount">>, L) || L <- Items(<<"liabilities">>), not Get(<<"settled">>, L)]),
      Moved = lists:sum([case Get(<<"direction">>, T) of
          <<"in">> -> Get(<<"amount">>, T);
          _ -> -Get(<<"amount">>, T)
        end || T <- Items(<<"transfers">>)]),
      Emit([Year, Get(<<"region">>, Declarant), Code], [Income, Assets, Debts, Moved]);
    _ -> ok
  end
end.
