// The classes of CouchDB's analyzers, below org.apache.lucene.analysis.

import java.util.*;

class Names {
  static final Map<String, String> CLASSES = new HashMap<>();

  static {
    String all = "arabic ar.Arabic armenian hy.Armenian basque eu.Basque brazilian br.Brazilian bulgarian bg.Bulgarian catalan ca.Catalan cjk cjk.CJK "
        + "classic classic.Classic czech cz.Czech danish da.Danish dutch nl.Dutch email email.UAX29URLEmail english en.English finnish fi.Finnish "
        + "french fr.French galician gl.Galician german de.German greek el.Greek hindi hi.Hindi hungarian hu.Hungarian indonesian id.Indonesian "
        + "irish ga.Irish italian it.Italian keyword core.Keyword latvian lv.Latvian norwegian no.Norwegian persian fa.Persian polish pl.Polish "
        + "portuguese pt.Portuguese romanian ro.Romanian russian ru.Russian simple core.Simple spanish es.Spanish standard standard.Standard "
        + "swedish sv.Swedish thai th.Thai turkish tr.Turkish whitespace core.Whitespace";
    String[] words = all.split(" ");
    for (int i = 0; i < words.length; i += 2) CLASSES.put(words[i], words[i + 1] + "Analyzer");
  }
}
